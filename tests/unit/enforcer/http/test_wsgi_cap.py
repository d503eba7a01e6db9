"""The WSGI middleware with the cap and with metrics: a slot is held until the response is finished, and no longer."""

from __future__ import annotations

import gc
import json
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from enforcer.cap.cap import Slot
from enforcer.cap.guard import CapGuard
from enforcer.clock import ManualClock
from enforcer.core.inflight import rooms_of
from enforcer.http.wsgi import RateLimitWSGIMiddleware
from enforcer.metrics.metrics import CopyMetrics
from enforcer.types import Reason, Source
from tests.unit.enforcer.harness import Fleet, make_policy

CAP: dict[str, Any] = {"fleet": {"copies": 1, "ceiling_per_s": 10}, "cap": {"latency_ms": 100}}  # one in flight


class _Broken(Exception):
    """What the applications of these tests fail with."""


def _start(*_: Any) -> Callable[[bytes], object]:
    return lambda _: None


def _environ(caller: str = "acme") -> dict[str, Any]:
    return {"REQUEST_METHOD": "GET", "PATH_INFO": "/", "SCRIPT_NAME": "", "HTTP_X_ACCOUNT": caller}


def _stream(_environ: Any, start_response: Any) -> Iterable[bytes]:
    start_response("200 OK", [])
    return (part for part in (b"a", b"b"))


def _ask(app: Any, *, caller: str = "acme") -> tuple[str, dict[str, str], bytes]:
    started: list[tuple[Any, ...]] = []
    response = app(_environ(caller), lambda *arguments: started.append(arguments))
    body = b"".join(response)
    return started[-1][0], dict(started[-1][1]), body


def test_a_request_without_room_is_refused_and_recorded_and_costs_nothing() -> None:
    """The protection: 503 at once, by the cap, whoever asks; the application never sees it."""
    fleet, guard = Fleet(make_policy(**CAP)), CapGuard(clock=ManualClock())
    app = RateLimitWSGIMiddleware(_stream, fleet.limiter, cap=guard)
    first = app(_environ(), _start)
    status, headers, body = _ask(app, caller="other")
    assert ("503 Service Unavailable", "1") == (status, headers["retry-after"])
    assert (503, "Service Unavailable") == (json.loads(body)["status"], json.loads(body)["title"])
    refusal = fleet.sink.verdicts[-1]
    assert (Source.CAP, Reason.CEILING) == (refusal.source, refusal.reason)
    assert [b"a", b"b"] == list(first)
    assert ("200 OK", b"ab") == (_ask(app)[0], _ask(app)[2])
    assert 0 == guard.cap.in_flight


def _raises(_environ: Any, _start_response: Any) -> Iterable[bytes]:
    raise _Broken


def _breaks_half_way(_environ: Any, start_response: Any) -> Iterator[bytes]:
    start_response("200 OK", [])
    yield b"a"
    raise _Broken


def _is_no_iterable(_environ: Any, start_response: Any) -> Any:
    start_response("200 OK", [])


@pytest.mark.parametrize("application", [_raises, _breaks_half_way, _is_no_iterable])
def test_an_application_that_fails_gives_its_slot_back(application: Any) -> None:
    """Before it answers, half way, or by answering with nothing: the error is the server's, the slot is free."""
    fleet, guard = Fleet(make_policy(**CAP)), CapGuard(clock=ManualClock())
    app = RateLimitWSGIMiddleware(application, fleet.limiter, cap=guard)
    with pytest.raises((_Broken, TypeError)):
        b"".join(app(_environ(), _start))
    assert (0, 0) == (guard.cap.in_flight, guard.cap.abandoned)


def test_what_the_limiter_refuses_holds_no_slot() -> None:
    """A flood of refusals must not close the service to others; nor must a request that cannot be read."""
    fleet, guard = Fleet(make_policy(rate_per_s=1, burst=1, **CAP)), CapGuard(clock=ManualClock())
    app = RateLimitWSGIMiddleware(_stream, fleet.limiter, cap=guard)
    assert ["200 OK", "429 Too Many Requests", "429 Too Many Requests"] == [_ask(app)[0] for _ in range(3)]
    assert "400 Bad Request" == _ask(app, caller="not\nprintable")[0]
    assert 0 == guard.cap.in_flight


def test_a_response_that_is_closed_or_dropped_gives_its_slot_back() -> None:
    """The client went away: a server closes what it did not read, and one that forgets is found out."""
    fleet, guard = Fleet(make_policy(**CAP)), CapGuard(clock=ManualClock())
    app = RateLimitWSGIMiddleware(_stream, fleet.limiter, cap=guard)
    closed: Any = app(_environ(), _start)
    assert b"a" == next(iter(closed))
    closed.close()
    assert (0, 0) == (guard.cap.in_flight, guard.cap.abandoned)
    dropped = app(_environ(), _start)
    del dropped
    gc.collect()
    assert (0, 1) == (guard.cap.in_flight, guard.cap.abandoned)


class _Erratic:
    """An application that fails at random points, and notes when more is in flight than may be."""

    def __init__(self, guard: CapGuard) -> None:
        self.guard = guard
        self.above: list[int] = []

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        chance = environ["chance"]
        if chance.random() < 0.1:
            raise _Broken
        start_response("200 OK", [])
        if self.guard.cap.in_flight > 27:
            self.above.append(self.guard.cap.in_flight)
        return [b"a", b"b"] if chance.random() < 0.3 else self._parts(chance)

    def _parts(self, chance: random.Random) -> Iterator[bytes]:
        for _ in range(3):
            if chance.random() < 0.1:
                raise _Broken
            yield b"a"


def _serve_erratically(app: Any, seed: int, ready: threading.Barrier) -> None:
    """As servers do: several responses at once, read to the end and closed, or half way, or never closed."""
    chance = random.Random(seed)
    under_way: list[Any] = []
    for number in range(250):
        if number % 125 == 0:
            # All begin together; and half way all wait with what they have under way, which is more than there is room.
            ready.wait(60)
        caller = "not\nprintable" if chance.random() < 0.05 else "acme"
        try:
            under_way.append(app({**_environ(caller), "chance": chance}, _start))
            if len(under_way) < 3:
                continue
            response, ending = under_way.pop(0), chance.random()
            if ending < 0.8:
                # The first part only, or all of them.
                next(iter(response), b"") if ending < 0.3 else b"".join(response)
            if ending < 0.9 and hasattr(response, "close"):
                response.close()
        except _Broken:
            continue


def test_in_flight_returns_to_zero_whatever_becomes_of_ten_thousand_requests() -> None:
    """E23 for WSGI: a slot that leaks closes the service for good, a few requests at a time."""
    fleet, guard = Fleet(make_policy(rate_per_s=2e4, burst=2_000, **CAP)), CapGuard(clock=ManualClock())
    slot = guard.enter(fleet.limiter, "first", "default")
    assert isinstance(slot, Slot)
    slot.release()
    guard.cap.resize(rooms_of(27))
    erratic = _Erratic(guard)
    app = RateLimitWSGIMiddleware(erratic, fleet.limiter, cap=guard)
    ready = threading.Barrier(40)
    threads = [threading.Thread(target=_serve_erratically, args=(app, seed, ready)) for seed in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    gc.collect()
    assert (0, []) == (guard.cap.in_flight, erratic.above)
    assert {Reason.NONE, Reason.SPENT, Reason.CEILING} == {verdict.reason for verdict in fleet.sink.verdicts}
    assert guard.cap.abandoned > 0


def test_one_check_in_sixteen_is_timed() -> None:
    """An operator sees how long checks take, waiting for the owner included."""
    metrics = CopyMetrics()
    app = RateLimitWSGIMiddleware(_stream, Fleet().limiter, metrics=metrics)
    for _ in range(33):
        _ask(app)
    assert 3 == metrics.read().distributions["tallygate_check_seconds"].counts[-1]
