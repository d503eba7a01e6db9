"""What grants were spent, by the decisions that name them and by what was stated of them: those that do not agree.

Whole grants are compared, by the time of their issue. Never asks an owner, the log or the clock.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from typing import Any

from aggregator.audit.counts.grants import MOST_DECISIONS, ask
from aggregator.sql import load_queries
from aggregator.store import Store
from aggregator.words import Finding, Span, plural

#: So many are named of what does not agree.
MOST_NAMED = 1_000


@dataclass(frozen=True, slots=True)
class GrantAccount:
    """One grant: what was lent, and what is said of it.

    Attributes:
        lent: whether the grant itself is on record; its size is 0 if not.
        finals: how many different final totals are stated; `settled` is the largest, `adjusted` the part of it that no
            decision names.
        known_spent: what the owner knew to be spent when it gave the grant back; counts only if `was_credited`.
        named: tokens of the admitted decisions that name it.
    """

    caller: str
    limit: str
    grant_id: int
    copy_id: str
    epoch: int
    lent: bool
    size: int
    finals: int
    settled: int
    adjusted: int
    was_credited: bool
    known_spent: int
    named: int
    decisions: int

    @property
    def life(self) -> tuple[str, int]:
        """Whose grant it was."""
        return self.copy_id, self.epoch

    def line(self, *, lossy: bool, stopped: bool) -> str:
        """What does not agree, with both numbers and what is likely.

        `lossy`: whether decisions of its copy's life are known to be missing; `stopped`: whether the copy ended in
        order, so that nothing it decided was left unsaid.
        """
        adjusted = f" and {self.adjusted:+,} adjusted" if self.adjusted else ""
        spent = f"decisions name {plural(self.named, 'token')}{adjusted}"
        if not self.lent:
            stated = f", its final total says {self.settled:,}" if self.finals else ""
            return (
                f"{spent}{stated}; the grant itself is not on record: a message of grants was lost, or its copy was "
                "killed before it sent it"
            )
        if self.finals > 1:
            return f"{spent}, and {self.finals} final totals are stated, the largest {self.settled:,}: settled twice"
        if not self.finals and self.named > self.size:
            return f"{spent}, and {self.size:,} were lent: decisions are counted twice"
        if not self.finals:
            return f"{spent} of {self.size:,} lent; {self._why_open()}"
        if self.named + self.adjusted < self.settled:
            return f"{spent}, its final total says {self.settled:,}: {_why_less(lossy=lossy, stopped=stopped)}"
        return f"{spent}, its final total says {self.settled:,}: decisions are counted twice"

    def _why_open(self) -> str:
        if not self.was_credited:
            return "no final total, and its owner did not give it back: its copy was killed, or the fact was lost"
        if self.known_spent > self.named:
            return (
                f"no final total, and its owner holds {self.known_spent:,} for spent: a quota, or a charge of a copy "
                "that was killed"
            )
        return f"no final total, and its owner gave it back, knowing of {self.known_spent:,}: its copy was killed"


def _why_less(*, lossy: bool, stopped: bool) -> str:
    if lossy:
        return "decisions of its copy are missing"
    if stopped:
        return "decisions that name it were removed"
    return (
        "its copy was killed, or runs still, and what it decided last is in no block; or decisions that name it were "
        "removed"
    )


@dataclass(frozen=True, slots=True)
class GrantCounts:
    """The grants of a span, counted in two ways; `faults` and `open` are at most 1,000 of `faulty` and `unsettled`.

    Attributes:
        grants, settled: how many were lent, and how many of them have a final total.
        named, adjusted, stated: tokens of the settled ones: by decisions, adjusted after the fact, by final totals.
        named_unsettled: tokens that decisions name of the others.
        unsettled: grants that were given back by their owner, or have long expired, without a final total.
        erased: settled grants of copies of which decisions were erased on request, that lack `erased_tokens`.
    """

    grants: int
    settled: int
    named: int
    adjusted: int
    stated: int
    named_unsettled: int
    faulty: int
    unsettled: int
    erased: int
    erased_tokens: int
    faults: Sequence[GrantAccount]
    open: Sequence[GrantAccount]


#: How many of these are counts.
_SUMS = len(fields(GrantCounts)) - 2


def count_grants(store: Store, span: Span, caller: str | None, *, most: int = MOST_DECISIONS) -> GrantCounts:
    """Compare the grants that were issued in a span, of one caller's buckets or of all, so many decisions at a time.

    Raises:
        StoreUnavailable, StoreRefused: the database could not be asked.
    """
    sums: list[Any] = [0] * _SUMS
    faults: list[GrantAccount] = []
    unsettled: list[GrantAccount] = []
    for *counts, faulty, still_open in ask(store, "grants_compared", span, caller, most=most):
        sums = [one + more for one, more in zip(sums, counts, strict=True)]
        faults += [GrantAccount(*grant) for grant in faulty]
        unsettled += [GrantAccount(*grant) for grant in still_open]
    # Parts come in the order of the callers, and accounts begin with them.
    return GrantCounts(*[*sums, faults[:MOST_NAMED], unsettled[:MOST_NAMED]])


def lives_that_stopped(store: Store, lives: Collection[tuple[str, int]]) -> set[tuple[str, int]]:
    """Those of some copies' lives, as (copy, epoch), that said that they end.

    Raises:
        StoreUnavailable, StoreRefused: the database could not be asked.
    """
    sql = load_queries("aggregator.sql", "audit_grants.sql")["lives_that_stopped"].sql
    return {(str(copy_id), int(epoch)) for copy_id, epoch in store.rows(sql, {"lives": sorted(lives)})}


def grant_findings(
    grants: Sequence[GrantAccount],
    lossy: Collection[tuple[str, int]],
    stopped: Collection[tuple[str, int]],
    *,
    kind: str,
) -> list[Finding]:
    """One finding for each grant.

    `lossy` are the lives of which decisions are known to be missing, `stopped` those that ended in order.
    """
    return [
        Finding(
            f"grant {grant.grant_id} of caller {grant.caller}, limit {grant.limit}, copy {grant.copy_id}, epoch "
            f"{grant.epoch}: {grant.line(lossy=grant.life in lossy, stopped=grant.life in stopped)}",
            {"kind": kind, **{name: getattr(grant, name) for name in GrantAccount.__slots__}},
        )
        for grant in grants
    ]
