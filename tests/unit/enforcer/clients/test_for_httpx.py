"""The transports for httpx, sync and async, on a transport that answers from a script. Nothing sleeps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from enforcer.clients import Retries, RetryBudget, RetryCounts
from enforcer.clients.for_httpx import MARK, AsyncRetryTransport, RetryTransport
from enforcer.clock import ManualClock
from enforcer.errors import InvalidField

URL = "http://api.example/"


class _Stream(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body on a connection: remembers how far it was read, and that it was closed."""

    def __init__(self, *, breaks: bool = False) -> None:
        self.read, self.closed, self._breaks = 0, False, breaks

    def __iter__(self) -> Iterator[bytes]:
        for chunk in (b"slow", b"down"):
            self.read += len(chunk)
            yield chunk
            if self._breaks:
                raise httpx.ReadError("gone")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self:
            yield chunk

    def close(self) -> None:
        self.closed = True

    async def aclose(self) -> None:
        self.closed = True


class _Server:
    """Answers from a script, and remembers when it was asked and with what body."""

    def __init__(self, *script: httpx.Response | Exception, is_async: bool, **given: Any) -> None:
        self.clock = ManualClock()
        self.retries = Retries(clock=self.clock, chance=lambda: 0.5, **given)
        self.script = list(script)
        self.asked_at_s: list[float] = []
        self.bodies: list[bytes] = []
        self._is_async = is_async
        self._began_ns = self.clock.monotonic_ns()

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.asked_at_s.append((self.clock.monotonic_ns() - self._began_ns) / 1e9)
        self.bodies.append(request.content)
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _sleep(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def _send(self, method: str, how: dict[str, Any]) -> httpx.Response:
        transport = RetryTransport(httpx.MockTransport(self._answer), self.retries, sleep=self.clock.advance)
        with httpx.Client(transport=transport) as client:
            return client.request(method, URL, **how)

    async def send(self, method: str, **how: Any) -> httpx.Response:
        if not self._is_async:
            return self._send(method, how)
        transport = AsyncRetryTransport(httpx.MockTransport(self._answer), self.retries, sleep=self._sleep)
        async with httpx.AsyncClient(transport=transport) as client:
            return await client.request(method, URL, **how)


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def _refused(status: int = 429, **headers: str) -> httpx.Response:
    return httpx.Response(status, headers={name.replace("_", "-"): value for name, value in headers.items()})


async def test_a_refused_request_is_answered_in_the_end_and_never_early(is_async: bool) -> None:
    """What the helper is for."""
    server = _Server(
        _refused(retry_after="3"),
        _refused(503),
        _refused(ratelimit='"r";r=0;t=2'),
        httpx.Response(200),
        is_async=is_async,
    )
    response = await server.send("PUT", content=b"all of it")
    assert 200 == response.status_code
    assert [0, 3.1, 3.3, 5.7] == pytest.approx(server.asked_at_s)
    assert [b"all of it"] * 4 == server.bodies
    assert RetryCounts(requests=1, refusals=3, retries=3) == server.retries.counts


@pytest.mark.parametrize(
    ("method", "how", "times"),
    [
        ("GET", {}, 2),
        ("POST", {"json": {"a": 1}}, 1),
        ("PATCH", {}, 1),
        ("POST", {"json": {"a": 1}, "extensions": {MARK: True}}, 2),
        ("GET", {"extensions": {MARK: False}}, 1),
        ("POST", {"files": {"f": b"x"}, "extensions": {MARK: True}}, 1),
    ],
)
async def test_only_what_may_be_done_twice_is_sent_again(
    is_async: bool, method: str, how: dict[str, Any], times: int
) -> None:
    """A second POST may be a second order; a stream read once goes out empty the second time."""
    server = _Server(_refused(retry_after="1"), httpx.Response(200), is_async=is_async)
    response = await server.send(method, **how)
    assert (times, 429 if times == 1 else 200) == (len(server.asked_at_s), response.status_code)
    assert 2 - times == server.retries.counts.unsafe


async def test_any_other_body_is_sent_once(is_async: bool) -> None:
    """A generator or a file that was read is empty the second time, and the server would take that for the body."""

    async def chunks() -> AsyncIterator[bytes]:
        yield b"once"

    server = _Server(_refused(retry_after="1"), is_async=is_async)
    response = await server.send("PUT", content=chunks() if is_async else iter([b"once"]))
    assert (429, [b"once"]) == (response.status_code, server.bodies)
    assert RetryCounts(requests=1, refusals=1, unsafe=1) == server.retries.counts


async def test_a_refusal_where_no_wait_helps_is_handed_back(is_async: bool) -> None:
    """A 429 without a time: its cost is above the limit's capacity, for good."""
    server = _Server(_refused(ratelimit='"rate";r=10'), is_async=is_async)
    assert 429 == (await server.send("GET")).status_code
    assert 1 == server.retries.counts.given_up


async def test_the_last_refusal_reaches_the_application_unread(is_async: bool) -> None:
    """When the budget is used up, the application gets the server's own words."""
    first, last = (httpx.Response(503, headers={"content-length": "8"}, stream=_Stream()) for _ in range(2))
    server = _Server(first, last, is_async=is_async, budget=RetryBudget(share=0, floor=1))
    response = await server.send("GET")
    assert (503, b"slowdown") == (response.status_code, response.content)
    assert RetryCounts(requests=1, refusals=2, retries=1, given_up=1) == server.retries.counts


@pytest.mark.parametrize(
    ("length", "breaks", "read"), [("8", False, 8), ("8", True, 4), ("65537", False, 0), (None, False, 0)]
)
async def test_a_refusal_lets_its_connection_go_before_the_wait(
    is_async: bool, length: str | None, breaks: bool, read: int
) -> None:
    """Waiting clients that hold connections use up the pool; a refusal without end is not read."""
    stream = _Stream(breaks=breaks)
    headers = {"retry-after": "1"} | ({"content-length": length} if length else {})
    server = _Server(httpx.Response(429, headers=headers, stream=stream), httpx.Response(200), is_async=is_async)
    assert 200 == (await server.send("GET")).status_code
    assert (read, True) == (stream.read, stream.closed)


async def test_a_broken_connection_is_tried_again_only_by_option(is_async: bool) -> None:
    """The default is the library's own behaviour; a slow answer is never asked for twice."""
    by_option = _Server(httpx.ConnectError("refused"), httpx.Response(200), is_async=is_async, connection_errors=True)
    assert 200 == (await by_option.send("GET")).status_code
    assert RetryCounts(requests=1, errors=1, retries=1) == by_option.retries.counts
    for fault, options in ((httpx.ConnectError("x"), {}), (httpx.ReadTimeout("x"), {"connection_errors": True})):
        server = _Server(fault, is_async=is_async, **options)
        with pytest.raises(type(fault)):
            await server.send("GET")


async def test_a_mark_that_is_no_bool_is_refused(is_async: bool) -> None:
    """The string "no" would be true."""
    with pytest.raises(InvalidField, match="True or False"):
        await _Server(is_async=is_async).send("GET", extensions={MARK: "no"})
