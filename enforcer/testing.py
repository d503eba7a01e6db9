"""What tests of a gateway need: a sink that remembers. Ships with the package; not for production."""

from __future__ import annotations

from collections.abc import Callable

from enforcer.messages import Settlement
from enforcer.sink import DegradeChanged, Event, GrantIssued, GrantSettled
from enforcer.types import Charge, Verdict


class RecordingSink:
    """Keeps everything it is given, without bound, in the order in which it came.

    Attributes:
        verdicts, grants, settlements, changes, events: what was taken.
        closed_within_s: what `close` was given; None before it.
    """

    def __init__(self) -> None:
        self.verdicts: list[Verdict] = []
        self.grants: list[GrantIssued] = []
        self.settlements: list[GrantSettled] = []
        self.changes: list[DegradeChanged] = []
        self.events: list[Event] = []
        self.closed_within_s: float | None = None

    @property
    def capture(self) -> Callable[[Verdict], None]:
        """See `Sink.capture`."""
        return self.verdicts.append

    def grant_issued(self, fact: GrantIssued) -> None:
        """See `Sink.grant_issued`."""
        self.grants.append(fact)

    def grant_settled(self, fact: GrantSettled) -> None:
        """See `Sink.grant_settled`."""
        self.settlements.append(fact)

    def degrade_changed(self, fact: DegradeChanged) -> None:
        """See `Sink.degrade_changed`."""
        self.changes.append(fact)

    def event(self, fact: Event) -> None:
        """See `Sink.event`."""
        self.events.append(fact)

    def close(self, timeout_s: float) -> None:
        """See `Sink.close`."""
        self.closed_within_s = timeout_s

    def spent_by_grant(self) -> dict[tuple[str, str, int], int]:
        """Tokens that admitted decisions spent of each grant, by (subject, limit, grant id)."""
        spent: dict[tuple[str, str, int], int] = {}
        for verdict in self.verdicts:
            basis = verdict.basis
            if not verdict.allowed or not verdict.cost:
                continue
            first = Charge(basis.caller, basis.limit, basis.grant_id)
            for charge in (first, *basis.also):
                if charge.grant_id:
                    key = (charge.subject, charge.limit, charge.grant_id)
                    spent[key] = spent.get(key, 0) + verdict.cost
        return spent

    def final_totals(self) -> dict[tuple[str, str, int], Settlement]:
        """The final settlement of each grant that has one, by (caller, limit, grant id)."""
        return {
            (fact.caller, fact.limit, fact.settlement.grant_id): fact.settlement
            for fact in self.settlements
            if fact.settlement.final
        }
