"""The lines in which requests wait: whom an answer decides, and whom it does not."""

from __future__ import annotations

from typing import Any

from enforcer.core.account import Account
from enforcer.limiting.waiter import Waiter
from enforcer.limiting.waiting import Desk, Lines
from enforcer.types import Verdict
from tests.unit.enforcer.harness import Fleet


def test_who_came_after_the_ask_went_out_is_not_decided_by_its_answer() -> None:
    """Nothing was asked for it, so that nothing is left says nothing about it: it stays for the next ask."""
    fleet = Fleet()
    lane = fleet.limiter._open_lane("acme", "default")
    settled: list[Waiter] = []

    def settle(waiter: Waiter, _account: Account, _now_ns: int) -> Verdict | None:
        settled.append(waiter)
        return None

    def nobody(waiter: Waiter, *_: object) -> Any:
        raise AssertionError(waiter)

    lines = Lines(Desk(settle, nobody, nobody))
    first, late = Waiter(lane, 1, None), Waiter(lane, 1, None)
    lines.add(first, lane.account)
    assert [1] == lines.count_in(lane.account)
    lines.add(late, lane.account)
    lines.serve(lane.account, fleet.clock.monotonic_ns())
    assert [first] == settled
    assert 1 == len(lines)
    assert [1] == lines.count_in(lane.account)
    lines.serve(lane.account, fleet.clock.monotonic_ns())
    assert [first, late] == settled
