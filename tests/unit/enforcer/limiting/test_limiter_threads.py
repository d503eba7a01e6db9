"""The limiter under many threads and tasks at once, with its own background thread and a scripted owner."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from enforcer.clock import SystemClock
from enforcer.errors import OwnerUnavailable
from enforcer.identity import new_identity
from enforcer.limiting.limiter import Limiter
from enforcer.limiting.waiter import Waiter
from enforcer.messages import Answer, Ask
from enforcer.settings import LimiterSettings
from enforcer.testing import RecordingSink
from enforcer.types import Grant, Source
from tests.processes import wait_until
from tests.unit.enforcer.harness import asker_of, make_policy


class GatedOwner:
    """Gives what `size` says; answers only while `gate` is open. Counts round trips."""

    def __init__(self, size: Callable[[Ask], int]) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.arrived = threading.Semaphore(0)
        self.trips: list[Sequence[Ask]] = []
        self._size = size
        self._grants = 0

    def ask(self, asks: Sequence[Ask]) -> list[Answer]:
        self.trips.append(asks)
        self.arrived.release()
        if not self.gate.wait(20):
            raise OwnerUnavailable("the test left the gate closed")
        return [self._answer(ask) for ask in asks]

    def probe(self) -> None:
        """Always there."""

    def close(self) -> None:
        """Nothing to release."""

    def _answer(self, ask: Ask) -> Answer:
        now_us = SystemClock.unix_us()
        size = self._size(ask)
        self._grants += 1
        grant = Grant(self._grants, size, 1, now_us, now_us + 60_000_000) if size else None
        return Answer(grant, 1, 0.0, 60_000 if size == 0 else 0, now_us, ())


def _limiter(
    owner: GatedOwner, *, ask_ms: int = 10_000, locked: bool | None = None, limits: dict[str, object] | None = None
) -> tuple[Limiter, RecordingSink]:
    sink = RecordingSink()
    policy = make_policy(rate_per_s=1e6, burst=1_000_000, timeouts={"ask_ms": ask_ms}, limits=limits or {})
    # Never ahead: a gate that was closed for long looks like a slow owner.
    settings = LimiterSettings(locked=locked, idle_settle_s=60, ask_ahead_above_ms=1e9)
    return Limiter(policy, owner, sink, new_identity("copy", unix_ms=1, pid=1), settings=settings), sink


@pytest.fixture
def _fast_switching() -> Iterator[None]:
    """Let threads interrupt each other as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_fast_switching")
@pytest.mark.parametrize("locked", [None, True])
def test_a_thousand_threads_on_a_grant_of_fifty_get_fifty(locked: bool | None) -> None:
    """E17: a race in the fast path would admit the fifty-first."""
    sizes = iter([50])
    owner = GatedOwner(lambda _: next(sizes, 0))
    limiter, sink = _limiter(owner, locked=locked)
    start = threading.Barrier(1_000)
    allowed: list[bool] = []

    def check_once() -> None:
        start.wait(60)
        allowed.append(limiter.check("acme").allowed)

    threads = [threading.Thread(target=check_once) for _ in range(1_000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    admitted = sum(allowed)
    limiter.close()
    assert 50 == admitted
    assert list(range(1_000)) == sorted(verdict.seq for verdict in sink.verdicts)
    assert [50] == [total.spent for total in sink.final_totals().values()]


@pytest.mark.usefixtures("_fast_switching")
@pytest.mark.parametrize("locked", [None, True])
def test_grants_that_change_under_many_threads_are_spent_exactly(locked: bool | None) -> None:
    """Every token of every grant: spent by one decision that names it, or given back."""
    left = [2_000]

    def size(ask: Ask) -> int:
        given = min(left[0], ask.waiting + 7)
        left[0] -= given
        return given

    limiter, sink = _limiter(GatedOwner(size), locked=locked)

    def check_many(worker: int) -> int:
        return sum(limiter.check("acme", f"route-{worker % 3}").allowed for _ in range(400))

    with ThreadPoolExecutor(8) as pool:
        admitted = sum(pool.map(check_many, range(8)))
    limiter.close()
    assert 2_000 == admitted
    spent = sink.spent_by_grant()
    assert spent == {key: total.spent for key, total in sink.final_totals().items() if total.spent}


@pytest.mark.usefixtures("_fast_switching")
@pytest.mark.parametrize("locked", [None, True])
def test_several_limits_under_many_threads_are_spent_together_or_not_at_all(locked: bool | None) -> None:
    """One token of each for each admission, although the grants of one run out while the other's are still held."""
    left = {"rate": 1_500, "site": 1_200}

    def size(ask: Ask) -> int:
        given = min(left[ask.limit], ask.waiting + 7)
        left[ask.limit] -= given
        return given

    site: dict[str, object] = {"site": {"by": "everyone", "rate_per_s": 1e6, "burst": 1_000_000}}
    limiter, sink = _limiter(GatedOwner(size), locked=locked, limits=site)

    def check_many(worker: int) -> int:
        return sum(limiter.check("acme", f"route-{worker % 3}").allowed for _ in range(300))

    with ThreadPoolExecutor(8) as pool:
        admitted = sum(pool.map(check_many, range(8)))
    limiter.close()
    assert 1_200 == admitted
    totals = {key: total.spent for key, total in sink.final_totals().items() if total.spent}
    assert totals == sink.spent_by_grant()
    assert list(range(8 * 300)) == sorted(verdict.seq for verdict in sink.verdicts)


def test_asks_of_many_requests_are_one_ask_and_many_callers_one_round_trip() -> None:
    """Coalesced per bucket, pipelined per owner: a thundering herd costs the owner one command."""
    owner = GatedOwner(lambda ask: ask.waiting)
    limiter, _ = _limiter(owner)
    owner.gate.clear()
    with ThreadPoolExecutor(41) as pool:
        first = pool.submit(limiter.check, "first")
        assert owner.arrived.acquire(timeout=20)
        rest = [pool.submit(limiter.check, f"caller-{number % 4}") for number in range(40)]
        wait_until(lambda: len(asker_of(limiter)._lines) >= 41, 20, what="all requests in line", poll_s=0.001)
        owner.gate.set()
        assert all(future.result(20).allowed for future in [first, *rest])
    assert 2 == len(owner.trips)
    assert [10, 10, 10, 10] == [ask.waiting for ask in owner.trips[1]]
    limiter.close()


def test_waiters_are_served_in_the_order_in_which_they_came() -> None:
    """First come, first served, when there is not enough for all."""
    owner = GatedOwner(lambda ask: 3 if ask.waiting > 1 else 0)
    limiter, _ = _limiter(owner)

    async def run() -> list[bool]:
        owner.gate.clear()
        blocker = asyncio.create_task(limiter.acheck("blocker"))
        await asyncio.to_thread(owner.arrived.acquire, timeout=20)
        tasks = [asyncio.create_task(limiter.acheck("acme")) for _ in range(6)]
        await asyncio.sleep(0)
        owner.gate.set()
        await blocker
        return [(await task).allowed for task in tasks]

    assert [True] * 3 + [False] * 3 == asyncio.run(run())
    limiter.close()


def test_cancelled_waiters_spend_nothing_and_leave_no_decision() -> None:
    """A client that hung up must not be charged, and its tokens serve the next."""
    owner = GatedOwner(lambda ask: ask.waiting)
    limiter, sink = _limiter(owner)

    async def run() -> None:
        owner.gate.clear()
        blocker = asyncio.create_task(limiter.acheck("blocker"))
        await asyncio.to_thread(owner.arrived.acquire, timeout=20)
        tasks = [asyncio.create_task(limiter.acheck("acme")) for _ in range(10)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        results = asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)
        owner.gate.set()
        await blocker
        cancelled = [isinstance(result, asyncio.CancelledError) for result in await results]
        assert [True, False] * 5 == cancelled

    asyncio.run(run())
    limiter.close()
    assert 0 == len(asker_of(limiter)._lines)
    assert 5 == sum(verdict.basis.caller == "acme" for verdict in sink.verdicts)
    spent = sink.spent_by_grant()
    assert spent == {key: total.spent for key, total in sink.final_totals().items() if total.spent}


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_request_waits_no_longer_than_its_timeout(asynchronous: bool) -> None:
    """E14: an owner that is frozen, not dead, costs a request its timeout and not a second more."""
    owner = GatedOwner(lambda ask: ask.waiting)
    limiter, sink = _limiter(owner, ask_ms=30)
    owner.gate.clear()
    before_ns = SystemClock.monotonic_ns()
    verdict = asyncio.run(limiter.acheck("acme")) if asynchronous else limiter.check("acme")
    assert SystemClock.monotonic_ns() - before_ns < 10_000_000_000, "while the gate is still closed, and not after it"
    assert (True, Source.DEGRADED) == (verdict.allowed, verdict.source)
    owner.gate.set()
    limiter.close()
    assert 1 == len(sink.verdicts)


def test_a_loop_that_is_gone_does_not_stop_the_others() -> None:
    """A request whose loop was closed cannot be answered; everybody else must be."""
    owner = GatedOwner(lambda ask: ask.waiting)
    limiter, sink = _limiter(owner)
    loop = asyncio.new_event_loop()
    lane = limiter._new_lane("gone", "default")
    with limiter._lock:
        waiter = Waiter(lane, 1, loop)
        loop.close()
        asker_of(limiter).line_up(waiter, lane.account)
    assert limiter.check("acme").allowed
    limiter.close()
    assert {"gone", "acme"} == {verdict.basis.caller for verdict in sink.verdicts}
