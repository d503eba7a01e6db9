"""The adapter for requests, with the library's own sending replaced by a script. Nothing sleeps."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPResponse

from enforcer.clients import Retries, RetryBudget, RetryCounts
from enforcer.clients.for_requests import RetryAdapter
from enforcer.clock import ManualClock

URL = "http://api.example/"


class _Server:
    """Stands where `HTTPAdapter.send` is: answers from a script, reads the body as a connection would."""

    def __init__(self, *script: requests.Response | Exception, marked: bool | None = None, **given: Any) -> None:
        clock = ManualClock()
        self._clock, self._began_ns = clock, clock.monotonic_ns()
        self.retries = Retries(clock=clock, chance=lambda: 0.5, **given)
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.mount(URL, RetryAdapter(self.retries, marked=marked, sleep=clock.advance))
        self.script = list(script)
        self.asked_at_s: list[float] = []
        self.bodies: list[bytes | None] = []
        self.timeouts: list[Any] = []

    def answer(self, request: requests.PreparedRequest, **named: Any) -> requests.Response:
        self.asked_at_s.append((self._clock.monotonic_ns() - self._began_ns) / 1e9)
        body: Any = request.body
        if hasattr(body, "read"):
            body = body.read()
        elif body is not None and not isinstance(body, str | bytes):
            body = b"".join(body)
        self.bodies.append(body)
        self.timeouts.append(named["timeout"])
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        answer.request = request
        return answer


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[..., _Server]:
    def start(*script: requests.Response | Exception, **given: Any) -> _Server:
        server = _Server(*script, **given)
        monkeypatch.setattr(HTTPAdapter, "send", server.answer)
        return server

    return start


def _response(status: int, body: bytes = b"", **headers: str) -> requests.Response:
    response = requests.Response()
    response.status_code, response.url = status, URL
    response.headers.update({name.replace("_", "-").title(): value for name, value in headers.items()})
    response.raw = HTTPResponse(io.BytesIO(body), status=status, preload_content=False)
    return response


def test_a_refused_request_is_answered_in_the_end_and_never_early(serve: Callable[..., _Server]) -> None:
    """What the helper is for; each attempt has the timeout that the application gave."""
    server = serve(_response(429, retry_after="3"), _response(503), _response(200, b"here"))
    response = server.session.put(URL, data=b"all of it", timeout=7)
    assert (200, b"here") == (response.status_code, response.content)
    assert [0, 3.1, 3.3] == pytest.approx(server.asked_at_s)
    assert ([b"all of it"] * 3, [7] * 3) == (server.bodies, server.timeouts)
    assert RetryCounts(requests=1, refusals=2, retries=2) == server.retries.counts


@pytest.mark.parametrize(
    ("method", "marked", "times"),
    [("GET", None, 2), ("POST", None, 1), ("PATCH", None, 1), ("POST", True, 2), ("GET", False, 1)],
)
def test_only_what_may_be_done_twice_is_sent_again(
    serve: Callable[..., _Server], method: str, marked: bool | None, times: int
) -> None:
    """A second POST may be a second order."""
    server = serve(_response(429, retry_after="1"), _response(200), marked=marked)
    response = server.session.request(method, URL, data="a=1")
    assert (times, 429 if times == 1 else 200) == (len(server.bodies), response.status_code)
    assert 2 - times == server.retries.counts.unsafe


def test_a_file_is_set_back_and_a_generator_is_sent_once(serve: Callable[..., _Server]) -> None:
    """What was read once goes out empty the second time, and the server would take that for the body."""
    file = io.BytesIO(b"head, the rest")
    file.seek(6)
    server = serve(_response(503), _response(200))
    assert 200 == server.session.put(URL, data=file).status_code
    assert [b"the rest"] * 2 == server.bodies
    server = serve(_response(503))
    assert 503 == server.session.put(URL, data=iter([b"once"])).status_code
    assert ([b"once"], 1) == (server.bodies, server.retries.counts.unsafe)


def test_the_last_refusal_reaches_the_application_unread(serve: Callable[..., _Server]) -> None:
    """No wait helps, or the budget is used up: the application gets the server's own words."""
    server = serve(_response(429, b"never", content_length="5", ratelimit='"rate";r=10'))
    assert b"never" == server.session.get(URL).content
    server = serve(_response(503), _response(503, b"slow"), budget=RetryBudget(share=0, floor=1))
    assert b"slow" == server.session.get(URL).content
    assert RetryCounts(requests=1, refusals=2, retries=1, given_up=1) == server.retries.counts


@pytest.mark.parametrize(("length", "read"), [("8", 8), ("65537", 0), (None, 0)])
def test_a_refusal_lets_its_connection_go_before_the_wait(
    serve: Callable[..., _Server], length: str | None, read: int
) -> None:
    """Waiting clients that hold connections use up the pool; a refusal without end is not read."""
    refusal = _response(503, b"slowdown", **({"content_length": length} if length else {}))
    server = serve(refusal, _response(200))
    assert 200 == server.session.get(URL).status_code
    assert (read, True) == (refusal.raw.tell(), refusal.raw.closed)


def test_a_broken_connection_is_tried_again_only_by_option(serve: Callable[..., _Server]) -> None:
    """A slow answer is never asked for twice, and a certificate does not get better."""
    server = serve(requests.ConnectionError("refused"), _response(200), connection_errors=True)
    assert 200 == server.session.get(URL).status_code
    assert RetryCounts(requests=1, errors=1, retries=1) == server.retries.counts
    for fault, option in (
        (requests.ConnectionError("x"), False),
        (requests.ReadTimeout("x"), True),
        (requests.exceptions.SSLError("x"), True),
    ):
        server = serve(fault, connection_errors=option)
        with pytest.raises(type(fault)):
            server.session.get(URL)


def test_an_adapter_cannot_be_pickled() -> None:
    """A copy in another process would have a budget of its own."""
    with pytest.raises(TypeError, match="budget"):
        pickle.dumps(RetryAdapter())
