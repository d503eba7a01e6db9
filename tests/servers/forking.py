"""Programs that fork while their limiter is at work. Run as ``python -m tests.servers.forking SCENARIO``.

Each ends with 0 if all of its children did what they should, in time.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

from enforcer import ConfigError, Limiter, PerProcess, RateLimitMiddleware, build_limiter
from enforcer.cap.cap import Slot
from enforcer.cap.guard import CapGuard
from enforcer.clients import Retries
from enforcer.http.asgi import Message
from enforcer.metrics.metrics import CopyMetrics
from stream import kafka_sink
from tests.servers.asgi_app import hello
from tests.servers.file_sink import FileSink

_PATIENCE_S = 20.0
#: More requests than one grant is for, so that the child asks too.
_REQUESTS = 30


def _fork(work: Callable[[], None]) -> int:
    """Start a child that does this and then ends as a program does; returns its process id."""
    child = os.fork()
    if child == 0:
        work()
        sys.exit(0)
    return child


def _wait(children: list[int]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    for child in children:
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
            if time.monotonic() > deadline:
                raise SystemExit(f"child {child} hangs")
            time.sleep(0.01)
        if ended[1] != 0:
            raise SystemExit(f"child {child} ended with {ended[1]}")


def _checks(limiter: Limiter, number: int = _REQUESTS) -> None:
    for _ in range(number):
        limiter.check("acme")


def plain() -> None:
    """The parent holds a grant and goes on; its children try to use its limiter, and then one of their own."""
    limiter = build_limiter(sink=FileSink)
    find = PerProcess.of(limiter)
    _checks(find(), 2)

    def work() -> None:
        try:
            limiter.check("acme")
        except ConfigError as fault:
            if f"built in process {os.getppid()}" not in str(fault):
                raise
        else:
            raise SystemExit("a forked limiter decided")
        # As an application's own `atexit.register(limiter.close)` would, in every fork of it.
        limiter.close()
        _checks(find())

    children = [_fork(work) for _ in range(3)]
    _checks(limiter)
    _wait(children)
    _checks(limiter, 5)
    limiter.close()


def locked() -> None:
    """Another thread of the parent is in the middle of everything; the child must still decide, count, and end."""
    metrics, guard, retries = CopyMetrics(), CapGuard(), Retries()
    limiter = build_limiter(sink=FileSink, metrics=metrics)
    find = PerProcess.of(limiter)
    _checks(find(), 3)
    in_flight = guard.enter(limiter, "acme", "default")
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with ExitStack() as locks:
            for one in (limiter, metrics, guard.cap, retries):
                locks.enter_context(one._lock)
            held.set()
            done.wait(_PATIENCE_S)

    def work() -> None:
        chances = [retries._chance() for _ in range(3)]
        if guard.cap.in_flight or metrics.read().values.get("tallygate_decisions_total"):
            raise SystemExit("what the parent serves is counted here")
        slot = guard.enter(find(), "acme", "default")
        _checks(find())
        retries.begin("GET")
        if isinstance(in_flight, Slot):
            in_flight.release()
        limiter.close()
        if (isinstance(slot, Slot), guard.cap.in_flight) != (True, 1):
            raise SystemExit(f"{guard.cap.in_flight} in flight in the child, which took one slot")
        if chances == [parents.random() for _ in range(3)]:
            raise SystemExit("chance repeats itself")

    parents = random.Random()
    parents.setstate(retries._chance.__self__.getstate())  # type: ignore[attr-defined]  # a method of Random
    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(_PATIENCE_S)
    child = _fork(work)
    done.set()
    thread.join()
    _wait([child])
    if guard.cap.in_flight != 1:
        raise SystemExit("the child gave back a slot of its parent")
    limiter.close()


def several() -> None:
    """Children of `multiprocessing`, which ends them without what is registered at exit."""
    find = PerProcess(lambda: build_limiter(sink=FileSink))
    _checks(find(), 2)
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=lambda: _checks(find())) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join(_PATIENCE_S)
        if child.exitcode != 0:
            raise SystemExit(f"child {child.pid} ended with {child.exitcode}")


def asgi() -> None:
    """An ASGI server that was given a limiter and forks its workers after that, as gunicorn does when it preloads."""
    limiter = build_limiter(sink=FileSink)
    app = RateLimitMiddleware(hello, limiter)

    async def serve() -> None:
        scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"x-account", b"acme")]}
        statuses: list[int] = []

        async def send(message: Message) -> None:
            statuses.extend([message["status"]] if "status" in message else [])

        for _ in range(_REQUESTS):
            await app(scope, _nothing, send)
        if not {200, 429} >= set(statuses) or len(statuses) != _REQUESTS:
            raise SystemExit(f"answered with {statuses}")

    asyncio.run(serve())
    _wait([_fork(lambda: asyncio.run(serve())) for _ in range(2)])
    limiter.close()


async def _nothing() -> Message:
    return {"type": "http.disconnect"}


def recording() -> None:
    """A record on Kafka: the parent's is shipped meanwhile, and each child has its own."""
    limiter = build_limiter(sink=kafka_sink)
    find = PerProcess.of(limiter)
    sink = limiter._sink

    def work() -> None:
        sink.close(5)
        _checks(find())

    children = []
    for _ in range(3):
        _checks(limiter)
        children.append(_fork(work))
    _wait(children)
    limiter.close()


if __name__ == "__main__":
    {"plain": plain, "locked": locked, "several": several, "recording": recording, "asgi": asgi}[sys.argv[1]]()
