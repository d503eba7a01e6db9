"""A limiter that the middleware builds at startup and closes at shutdown, whatever the application does."""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Callable
from typing import Any

import pytest

from enforcer.errors import ConfigError, EnforcerError
from enforcer.http.asgi import Message, RateLimitMiddleware, Receive, Scope, Send
from enforcer.limiting.limiter import Limiter
from tests.unit.enforcer.harness import Fleet


class Server:
    """A server's side of one lifespan."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.sent: list[Message] = []
        self._inbox: asyncio.Queue[Message] = asyncio.Queue()
        self._outbox: asyncio.Queue[Message] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> Message:
        self._task = asyncio.create_task(self.app({"type": "lifespan"}, self._inbox.get, self._outbox.put))
        return await self._exchange("lifespan.startup")

    async def stop(self) -> Message:
        answer = await self._exchange("lifespan.shutdown")
        assert self._task is not None
        await asyncio.wait_for(self._task, 10)
        return answer

    async def _exchange(self, kind: str) -> Message:
        await self._inbox.put({"type": kind})
        return await asyncio.wait_for(self._outbox.get(), 10)


async def _with_lifespan(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        for kind in ("startup", "shutdown"):
            assert f"lifespan.{kind}" == (await receive())["type"]
            await send({"type": f"lifespan.{kind}.complete"})


async def _that_raises(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        raise NotImplementedError(scope["type"])


async def _that_reads_and_raises(scope: Scope, receive: Receive, send: Send) -> None:
    message = await receive()
    raise KeyError(message["type"])


async def _that_returns(scope: Scope, receive: Receive, send: Send) -> None:
    return


async def _that_answers_everything(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


@pytest.mark.parametrize(
    "app", [_with_lifespan, _that_raises, _that_reads_and_raises, _that_returns, _that_answers_everything]
)
async def test_the_limiter_lives_from_startup_to_shutdown(app: Any) -> None:
    """A ten-line application that knows no lifespan must still have its grants settled at the end."""
    fleet = Fleet()
    built: list[Limiter] = []

    def build() -> Limiter:
        built.append(fleet.limiter)
        return fleet.limiter

    server = Server(RateLimitMiddleware(app, build))
    assert "lifespan.startup.complete" == (await server.start())["type"]
    assert [fleet.limiter] == built
    assert fleet.sink.closed_within_s is None
    assert "lifespan.shutdown.complete" == (await server.stop())["type"]
    assert fleet.sink.closed_within_s is not None


@pytest.mark.parametrize(
    ("error", "tracebacks"),
    [(ConfigError("TALLYGATE_OWNER_URL has another scheme"), 0), (LookupError("another scheme, unforeseen"), 1)],
)
async def test_a_limiter_that_cannot_be_built_fails_the_startup_with_its_reason(
    error: Exception, tracebacks: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Serving without a limiter because of a typing error would be found by the first attacker.

    The server logs the reason that it is sent; a traceback would bury it, unless the fault is in the program.
    """

    def build() -> Limiter:
        raise error

    server = Server(RateLimitMiddleware(_with_lifespan, build))
    answer = await server.start()
    assert "lifespan.startup.failed" == answer["type"]
    assert "another scheme" in answer["message"]
    assert tracebacks == len(caplog.records)


@pytest.mark.parametrize("app", [_with_lifespan, _that_answers_everything])
async def test_nothing_is_left_to_do_once_the_shutdown_is_complete(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers end their loop then; one that had to cancel us would log that the lifespan is not supported."""
    fleet = Fleet()
    steps: list[str] = []
    close = Limiter.close

    def note_and_close(limiter: Limiter) -> None:
        steps.append("close")
        close(limiter)

    async def send(message: Message) -> None:
        steps.append(message["type"])

    monkeypatch.setattr(Limiter, "close", note_and_close)
    inbox: asyncio.Queue[Message] = asyncio.Queue()
    for kind in ("startup", "shutdown"):
        inbox.put_nowait({"type": f"lifespan.{kind}"})
    await RateLimitMiddleware(app, lambda: fleet.limiter)({"type": "lifespan"}, inbox.get, send)
    assert ["lifespan.startup.complete", "close", "lifespan.shutdown.complete"] == steps


async def test_an_application_that_fails_after_startup_closes_the_limiter_and_says_so() -> None:
    """Its failure is the application's to tell; our grants still go home."""
    fleet = Fleet()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        raise LookupError("the application's own")

    server = Server(RateLimitMiddleware(app, lambda: fleet.limiter))
    await server.start()
    await server._inbox.put({"type": "lifespan.shutdown"})
    assert server._task is not None
    with pytest.raises(LookupError):
        await asyncio.wait_for(server._task, 10)
    assert fleet.sink.closed_within_s is not None


async def test_a_server_without_lifespan_gets_the_limiter_with_the_first_request() -> None:
    """Some servers and test clients have none."""
    fleet = Fleet()
    calls: list[int] = []

    def build() -> Limiter:
        calls.append(1)
        return fleet.limiter

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 204})

    middleware = RateLimitMiddleware(app, build)
    for _ in range(2):
        await middleware({"type": "http", "method": "GET", "path": "/", "headers": []}, receive, send)
    assert [1] == calls
    assert [204, 204] == [message["status"] for message in sent]
    assert all(any(name == b"ratelimit" for name, _ in message["headers"]) for message in sent)


async def test_a_server_without_a_lifespan_is_told_what_it_loses(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a lifespan nobody tells the limiter that the end is near: said once, and closed at a normal exit."""
    at_exit: list[Callable[[], None]] = []
    monkeypatch.setattr(atexit, "register", at_exit.append)
    fleet = Fleet()
    app = RateLimitMiddleware(_hello, lambda: fleet.limiter)
    for _ in range(2):
        assert 200 == (await _get(app))["status"]
    assert ["no_lifespan"] == [record.__dict__["action"] for record in caplog.records]
    (close,) = at_exit
    close()
    with pytest.raises(EnforcerError, match="closed"):
        fleet.limiter.check("acme")


async def _hello(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def _get(app: Any) -> Message:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request"}

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"x-account", b"acme")]}
    await app(scope, receive, send)
    return sent[0]
