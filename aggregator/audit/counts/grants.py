"""What became of every token that was lent, asked of the record: the one place that puts the questions together.

docs/ledger.md defines the terms; `aggregator/sql/audit_grants.sql` computes them. Builds no statement from a value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from aggregator.retention.kept import kept
from aggregator.sql import composed, load_queries
from aggregator.store import Store
from aggregator.words import Span

_FILE = "audit_grants.sql"
#: So many decisions that name their callers' own grants are put together by one statement. What others took of shared
#: limits is looked for in all of the span each time.
MOST_DECISIONS = 2_000_000


@dataclass(frozen=True, slots=True)
class LedgerHour:
    """The grants that were lent in one hour, in tokens.

    ``granted = spent + returned + credited + outstanding + missing - surplus``, and the last two are 0 where the record
    agrees.

    Attributes:
        hour_s: its start, unix seconds.
        grants: how many.
        granted: their sizes.
        spent: cost of the decisions that name them, and what was charged less what was refunded after the fact.
        returned: what copies gave back with their final totals.
        credited: what the owner gave back, unsettled after their expiry, and no decision names.
        outstanding: of which nobody has said what became.
        missing: what final totals say was spent, and no decision names.
        surplus: what decisions name, and final totals say was not spent; or was never lent.
        adjusted: the part of `spent` that no decision names; below 0 where more was refunded than charged.
        given_back_and_spent: what the owner gave back although it had been spent, as it could not know.
        not_on_record: grants that are named, and that the record does not hold; in none of the other numbers.
        spent_not_on_record: what was spent of those.
    """

    hour_s: int
    grants: int
    granted: int
    spent: int
    returned: int
    credited: int
    outstanding: int
    missing: int
    surplus: int
    adjusted: int
    given_back_and_spent: int
    not_on_record: int
    spent_not_on_record: int

    @property
    def agrees(self) -> bool:
        """Whether all that was lent is accounted for."""
        return not (self.missing or self.surplus or self.not_on_record)


def ledger_hours(
    store: Store, span: Span, caller: str | None = None, *, most: int = MOST_DECISIONS
) -> list[LedgerHour]:
    """The hours of a span in which anything was lent, oldest first.

    Args:
        store: where the record is.
        span: grants belong to it by the time of their issue, by the owner's clock; all that became of them counts.
        caller: whose bucket; everybody's if None.
        most: so many decisions are summed in one statement.

    Raises:
        StoreUnavailable, StoreRefused: the database could not be asked.
    """
    hours: dict[int, list[int]] = {}
    for hour_s, *sums in ask(store, "ledger", span, caller, most=most):
        held = hours.setdefault(hour_s, [0] * len(sums))
        hours[hour_s] = [one + more for one, more in zip(held, sums, strict=True)]
    return [LedgerHour(hour_s, *sums) for hour_s, sums in sorted(hours.items())]


def kept_hours(store: Store, span: Span, caller: str | None = None) -> list[LedgerHour]:
    """The same as the settler last summed it: whole hours that begin in the span.

    Cheap for all callers, and minutes to an hour behind what settlements and credits say; when hours are summed stands
    in `aggregator/settler/passes/ledger.py`.

    Raises:
        StoreUnavailable, StoreRefused: the database could not be asked.
    """
    sql = load_queries("aggregator.sql", _FILE)["ledger_kept"].sql
    return [LedgerHour(*row) for row in store.rows(sql, {**span.parameters, "caller": caller or ""})]


def as_far_as_kept(store: Store, span: Span) -> tuple[Span, list[str]]:
    """The part of a span of which raw decisions are still kept (at its end, if none), and what is said of the rest.

    Raises:
        StoreUnavailable, StoreRefused: the database could not be asked.
    """
    still = kept(store)
    from_us = min(max(span.from_us, still.admitted_from_us), span.to_us - 1)
    return Span(from_us, span.to_us), still.gone(span.from_us, span.to_us)


def ask(
    store: Store, name: str, span: Span, caller: str | None, *, most: int = MOST_DECISIONS
) -> Iterator[tuple[Any, ...]]:
    """The rows of one of the questions about grants, of one part of the callers after the other.

    Args:
        store: where the record is.
        name: which question.
        span: grants belong to it by the time of their issue.
        caller: whose bucket; everybody's if None.
        most: a part has at most so many decisions, and one caller more.

    Raises:
        StoreUnavailable, StoreRefused: the database could not be asked.
    """
    queries = load_queries("aggregator.sql", _FILE)
    bound: dict[str, Any] = {**span.parameters, "caller": caller or "", "most": most}
    bound["decided_to_us"] = store.rows(queries["decided_until"].sql, bound)[0][0]
    begins = [] if caller else [str(begin) for (begin,) in store.rows(queries["grant_parts"].sql, bound)][1:]
    for from_caller, to_caller in pairwise(["", *begins, ""]):
        yield from store.rows(composed(_FILE, name), bound | {"from_caller": from_caller, "to_caller": to_caller})
