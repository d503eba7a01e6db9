"""What every sink must do, whichever way the facts leave. Run by the `test_sink_*` files on each implementation."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from enforcer.sink import DegradeChanged, GrantIssued, GrantSettled, Sink
from enforcer.types import Plan, Reason, Source, Verdict, outcome_code
from tests.verdicts import basis, grant, settlement, verdict, verdicts

CHANGE = DegradeChanged("10.0.0.1:6379", True, "no answer in 50 ms", 1_750_000_000_000_001)


@dataclass(frozen=True)
class Kept:
    """What came out at the other end. Decisions as (seq, caller, scope, code, cost, remaining, retry, grant, k)."""

    decisions: list[tuple[object, ...]]
    grants: list[GrantIssued]
    settlements: list[GrantSettled]
    changes: list[DegradeChanged]


def decision(one: Verdict) -> tuple[object, ...]:
    """A verdict in the form of `Kept.decisions`."""
    on = one.basis
    return (
        one.seq,
        on.caller,
        on.scope,
        one.code,
        one.cost,
        one.remaining,
        one.retry_after_ms,
        on.grant_id,
        on.k,
    )


class SinkRig(ABC):
    """One sink under test, and the way to read what it kept once it is closed."""

    @property
    @abstractmethod
    def sink(self) -> Sink:
        """The sink."""

    @abstractmethod
    def kept(self, decisions: int) -> Kept:
        """Everything that came out; a remote end is read until so many decisions have come."""


class SinkContract:
    """Subclasses give the fixture `rig`."""

    def test_every_verdict_comes_out_once_and_unchanged(self, rig: SinkRig) -> None:
        """The verdict is the record: nothing may be lost, doubled or altered on the way."""
        refused = outcome_code(Source.SHARED, Reason.SPENT)
        taken = [
            verdict(
                seq,
                on=basis(f"acct-{seq % 97}", f"GET /v1/{seq % 5}", plan=Plan("p", 1.0 + seq % 3, 10)),
                code=refused if seq % 9 == 0 else 0,
                cost=1 + seq % 4,
                remaining=seq % 300,
                retry_after_ms=seq if seq % 9 == 0 else 0,
            )
            for seq in range(5_000)
        ]
        _capture(rig.sink, taken)
        rig.sink.close(20.0)
        assert [decision(one) for one in taken] == sorted(rig.kept(5_000).decisions)

    def test_facts_come_out_as_they_were(self, rig: SinkRig) -> None:
        """The ledger needs each grant and each total."""
        grants = [grant(f"acct-{number}", grant_id=10**15 + number) for number in range(20)]
        settlements = [settlement(f"acct-{number}", grant_id=10**15 + number) for number in range(20)]
        for issued, settled in zip(grants, settlements, strict=True):
            rig.sink.grant_issued(issued)
            rig.sink.grant_settled(settled)
        rig.sink.degrade_changed(CHANGE)
        _capture(rig.sink, verdicts(1))
        rig.sink.close(20.0)
        kept = rig.kept(1)
        assert grants == sorted(kept.grants, key=lambda fact: fact.grant.grant_id)
        assert settlements == sorted(kept.settlements, key=lambda fact: fact.settlement.grant_id)
        assert [CHANGE] == kept.changes

    def test_threads_may_append_out_of_order(self, rig: SinkRig) -> None:
        """`seq` is drawn before the append: two threads overtake each other."""
        lanes = [[verdict(seq) for seq in range(lane, 4_000, 4)] for lane in range(4)]
        threads = [threading.Thread(target=_capture, args=(rig.sink, lane)) for lane in lanes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rig.sink.close(20.0)
        assert list(range(4_000)) == sorted(row[0] for row in rig.kept(4_000).decisions if isinstance(row[0], int))

    def test_capture_is_one_callable_and_takes_no_lock(self, rig: SinkRig) -> None:
        """The limiter fetches it once and calls it for every decision."""
        capture = rig.sink.capture
        capture(verdict(0))
        rig.sink.close(20.0)
        assert [decision(verdict(0))] == rig.kept(1).decisions

    def test_closing_twice_and_capturing_afterwards_is_harmless(self, rig: SinkRig) -> None:
        """A request that is late at shutdown must not fail because of the record."""
        _capture(rig.sink, verdicts(3))
        rig.sink.close(20.0)
        rig.sink.close(20.0)
        rig.sink.capture(verdict(3))
        rig.sink.grant_issued(grant())
        rig.sink.degrade_changed(CHANGE)
        kept = rig.kept(3)
        assert [0, 1, 2] == [row[0] for row in kept.decisions][:3]


def _capture(sink: Sink, taken: Sequence[Verdict]) -> None:
    capture = sink.capture
    for one in taken:
        capture(one)
