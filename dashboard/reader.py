"""Reads what a page needs, query by query, and turns rows into values. No page logic, no SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, TypeVar

from dashboard.answers import QUARTER_S, Totals, decision_of, grant_of, plan_of, totals_of
from dashboard.days import Reach, busier, fold_days
from dashboard.rows import Busiest, CallerRecord, CopyMark, Decision, GrantFacts, Losses, Settled
from dashboard.store import Ask, Record
from dashboard.views import Frame
from enforcer.identity import CopyIdentity
from stream.contract.topics import DECISIONS

_Read = TypeVar("_Read")

#: Up to so many decisions the busiest second is counted in the exact record, where nothing rolled up says it; beyond,
#: the busiest minute is taken from the totals. A second of counting is worth about 25 million rows on an idle core, a
#: page is worth less.
SECONDS_COUNTED_UP_TO = 1_000_000
#: A copy's mark older than this says nothing about now.
_MARKS_SINCE_S = 2 * 86_400
_DAY_S, _DAY_US = 86_400, 86_400_000_000
#: The number of 1970-01-01 among days.
_EPOCH = date(1970, 1, 1).toordinal()
#: What the row of `fleet_complete` that belongs to no copy says in place of whether it stopped.
_NOBODYS = 2
#: So many quarters of an hour are named in a question; where more had to be, minutes of the whole span are read.
_MOST_QUARTERS = 200


@dataclass(frozen=True, slots=True)
class _Span:
    """What of a caller is read: a span, and which of its quarters of an hour minute by minute (all if `fresh` is None).

    The other quarters are rolled up. `doubted`: whether the live totals of some minutes were found to be wrong.
    """

    from_s: int
    to_s: int
    step_s: int
    starts_s: Sequence[int]
    fresh: Sequence[int] | None
    doubted: bool

    @property
    def times(self) -> dict[str, int]:
        """As the queries bind it, without its quarters."""
        return {"from_s": self.from_s, "to_s": self.to_s}

    @property
    def divided(self) -> dict[str, Any]:
        """The same with its quarters; minutes are read from the first one on."""
        if self.fresh is None:
            return {**self.times, "fresh": [], "every": 1, "live_from_s": self.from_s}
        first_s = max(self.from_s, self.fresh[0] * QUARTER_S) if self.fresh else self.to_s
        return {**self.times, "fresh": list(self.fresh), "every": 0, "live_from_s": first_s}

    @property
    def reach(self) -> Reach:
        """What is taken from what is rolled up."""
        ends = -(-self.to_s // QUARTER_S)
        return Reach(self.from_s // QUARTER_S, ends, frozenset(self.fresh or ()), self.starts_s)


@dataclass(frozen=True, slots=True)
class _Stand:
    """How far the record is settled and rolled up.

    Attributes:
        ever: whether a settler ever said where it stands.
        minutes: of which something is on record that is not settled, unix seconds / 60.
        rolled: quarters of an hour that are rolled up, unix seconds / 900.
        doubted: those with minutes in which live totals were found to be wrong.
    """

    ever: bool
    minutes: frozenset[int]
    rolled: frozenset[int]
    doubted: frozenset[int]

    @property
    def settled(self) -> Settled:
        """Up to where all is settled."""
        return Settled(min(self.minutes, default=0) * 60_000_000 or None, self.ever)

    def fresh(self, first: int, end: int) -> list[int]:
        """Of these quarters, those of which minutes have to be read, ascending."""
        dirty = {minute * 60 // QUARTER_S for minute in self.minutes}
        return [quarter for quarter in range(first, end) if quarter in dirty or quarter not in self.rolled]


def read_caller(record: Record, caller: str, frame: Frame, *, refusals: int) -> CallerRecord:
    """Everything about one caller in one span, with the last `refusals` refusals.

    What does not wait for another answer is asked beside it.

    Raises:
        RecordUnavailable: the record cannot be read now.
    """
    complete = record.beside(lambda: _complete(record, frame))
    stand = _stand(record, frame)
    span = _span(frame, stand)
    totals = _totals(record, caller, span)
    offered = sum(counts.offered for counts in totals.endpoints.values())
    told = min(refusals, sum(counts.refused for counts in totals.endpoints.values())) if offered else refusals
    most = record.beside(lambda: _with(record, caller, lambda ask: _busiest(ask, span, totals)))
    with record.of_caller(caller) as ask:
        # Only a caller that sent nothing in the span needs a look further back.
        last = [] if totals.steps else ask("caller_last_seen")
        refused = _refusals(ask, span.times, rows=refusals, told=told)
        busiest = most()
        decided = _decided(ask, span.times, offered, refused, busiest)
    marks, losses = complete()
    return CallerRecord(
        series=totals.series,
        endpoints=totals.endpoints,
        steps=totals.steps,
        copies_reached=len(totals.copies),
        last_plan=plan_of(*last[0][1:]) if last else None,
        last_seen_us=int(last[0][0]) * 1_000_000 if last else None,
        busiest=busiest,
        decided=decided,
        refusals=refused,
        marks=marks,
        losses=losses,
        settled=stand.settled,
    )


def read_marks(record: Record, frame: Frame) -> tuple[list[CopyMark], Losses, Settled]:
    """How far each copy's record is complete; how many decisions of the span are lacking; how far it is settled."""
    complete = record.beside(lambda: _complete(record, frame))
    settled = _stand(record, frame).settled
    return *complete(), settled


def read_grants(record: Record, caller: str, decisions: Iterable[Decision]) -> list[GrantFacts]:
    """The grants that these decisions of one caller name."""
    grant_ids = sorted({decision.grant_id for decision in decisions if decision.grant_id})
    if not grant_ids:
        return []
    with record.of_caller(caller) as ask:
        return [grant_of(row) for row in ask("caller_grants", grant_ids=grant_ids)]


def find_decision(record: Record, identity: CopyIdentity, seq: int) -> Decision | None:
    """One decision by its identity; None if the record does not hold it (yet).

    The block that holds it says when it was made: whose it is is looked for among the decisions of that time, and what
    else is known of it in that caller's minute.
    """
    key = {"copy_id": identity.copy_id, "epoch": identity.epoch, "seq": seq}
    with record.of_support() as ask:
        made = ask("support_block", **key)
        if not made:
            return None
        first_us, last_us = (int(time_us) for time_us in made[0])
        for wider_us in (0, _DAY_US):
            holder = ask("support_holder", **key, from_us=max(0, first_us - wider_us), to_us=last_us + wider_us)
            for caller, minute_s in holder:
                found = ask("support_decision", **key, caller=caller, minute_s=int(minute_s))
                if found:
                    return decision_of(found[0])
    return None


def known_callers(record: Record, prefix: str, *, rows: int) -> list[str]:
    """Callers whose name begins with `prefix`, whatever the capitals, at most `rows`, sorted."""
    with record.of_support() as ask:
        return sorted(str(row[0]) for row in ask("support_callers", prefix=prefix, rows=rows))


def _with(record: Record, caller: str, call: Callable[[Ask], _Read]) -> _Read:
    with record.of_caller(caller) as ask:
        return call(ask)


def _totals(record: Record, caller: str, span: _Span) -> Totals:
    """What is rolled up, and the minutes that are not."""
    minutes = None
    if span.fresh:
        minutes = record.beside(
            lambda: _with(record, caller, lambda ask: ask("caller_minutes", **span.divided, step=span.step_s))
        )
    with record.of_caller(caller) as ask:
        if span.fresh is None:
            totals = totals_of(ask("caller_totals", **span.times, step=span.step_s))
        else:
            first, last = span.reach.days
            days = {"first": _date(first), "last": _date(last), "partial": [_date(one) for one in span.reach.partial()]}
            totals = fold_days(ask("caller_days", **days), span.reach)
        if minutes is not None:
            totals.add(minutes())
        if span.doubted:
            totals.correct(ask("caller_corrections", **span.divided, step=span.step_s))
    return totals


def _date(day: int) -> date:
    """A unix day."""
    return date.fromordinal(_EPOCH + day)


def _refusals(ask: Ask, span: dict[str, int], *, rows: int, told: int) -> list[Decision]:
    """The last refusals of a span; older days are looked at only if the newest hold fewer than the totals tell of.

    What is newer than the totals is in the newest days, so it is found in any case.
    """
    for back_s in (_DAY_S, span["to_s"]):
        from_s = max(span["from_s"], span["to_s"] - back_s)
        found = ask("caller_refusals", from_s=from_s, to_s=span["to_s"], rows=rows)
        if len(found) >= told or from_s == span["from_s"]:
            break
    return [decision_of(row) for row in found]


def _complete(record: Record, frame: Frame) -> tuple[list[CopyMark], Losses]:
    marks, losses = list[CopyMark](), Losses()
    with record.of_fleet() as ask:
        since_s = frame.now_us // 1_000_000 - _MARKS_SINCE_S
        for copy_id, number, sealed_at_us, stopped in ask("fleet_complete", **_times(frame), since_s=since_s):
            if int(stopped) == _NOBODYS:
                losses = Losses(int(number), int(sealed_at_us))
            else:
                marks.append(CopyMark(str(copy_id), int(number), int(sealed_at_us), bool(stopped)))
    return marks, losses


def _stand(record: Record, frame: Frame) -> _Stand:
    with record.of_fleet() as ask:
        rows = ask("fleet_stand", **_times(frame), topic=DECISIONS.name)
    found = {str(what): [int(number) for number in numbers] for what, numbers in rows}
    settlers, *minutes = found["open"]
    return _Stand(settlers > 0, frozenset(minutes), frozenset(found["rolled"]), frozenset(found["doubted"]))


def _times(frame: Frame) -> dict[str, int]:
    return {"from_s": frame.buckets[0].start_s, "to_s": frame.now_us // 1_000_000 + 1}


def _span(frame: Frame, stand: _Stand) -> _Span:
    """What is read: minutes where steps are finer than a quarter of an hour, or where next to nothing is rolled up."""
    from_s, to_s = _times(frame).values()
    step_s, starts_s = frame.span.step_s, [bucket.start_s for bucket in frame.buckets]
    if step_s % QUARTER_S == 0 and from_s % QUARTER_S == 0:
        fresh = stand.fresh(from_s // QUARTER_S, -(-to_s // QUARTER_S))
        if len(fresh) <= _MOST_QUARTERS:
            return _Span(from_s, to_s, step_s, starts_s, fresh, not stand.doubted.isdisjoint(fresh))
    return _Span(from_s, to_s, step_s, starts_s, None, doubted=True)


def _busiest(ask: Ask, span: _Span, totals: Totals) -> Busiest | None:
    """The busiest second: of what is rolled up, and counted in the exact record where that does not say it.

    Where that is too much to count, the busiest minute.
    """
    known = totals.second.requests if totals.second is not None else 0
    quarters = sorted({*(span.fresh or ()), *(quarter for quarter, most in totals.unsure if most >= known)})
    if span.fresh is None or len(quarters) > _MOST_QUARTERS:
        quarters, counted = [], sum(counts.offered for counts in totals.series.values())
        reach = {**span.times, "every": 1}
    else:
        counted = sum(totals.quarters.get(quarter, 0) for quarter in quarters)
        reach = {**_around(span, quarters), "every": 0}
    if counted > SECONDS_COUNTED_UP_TO:
        rows = ask("caller_busiest_minute", **span.divided)
        return busier(totals.minute, _found(rows, "minute"))
    rows = ask("caller_busiest_second", **reach, within=quarters) if counted else []
    return busier(totals.second, _found(rows, "second"))


def _around(span: _Span, quarters: Sequence[int]) -> dict[str, int]:
    """The span of some quarters, as far as they lie in another."""
    if not quarters:
        return {"from_s": span.from_s, "to_s": span.from_s}
    ends_s = (quarters[-1] + 1) * QUARTER_S
    return {"from_s": max(span.from_s, quarters[0] * QUARTER_S), "to_s": min(span.to_s, ends_s)}


def _found(rows: Sequence[tuple[Any, ...]], unit: str) -> Busiest | None:
    return Busiest(int(rows[0][0]) * 1_000_000, int(rows[0][1]), unit) if rows else None


def _decided(ask: Ask, span: dict[str, int], offered: int, refused: Sequence[Decision], busiest: Busiest | None) -> int:
    """How many decisions the exact record holds at least, from what was read of it anyway."""
    if offered or refused:
        counted = busiest.requests if busiest is not None and busiest.unit == "second" else 0
        return max(len(refused), counted)
    return len(ask("caller_decided", **span))
