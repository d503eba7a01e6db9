"""Where callers stand in the database, and what of it is an erased one's past. Reads only."""

from __future__ import annotations

from dataclasses import dataclass

from aggregator.erasure.letters import letters_of
from aggregator.erasure.past import Past
from aggregator.retention.kept import kept
from aggregator.sql import load_queries
from aggregator.store import Store
from aggregator.words import LATEST_US

_QUERIES = load_queries("aggregator.sql", "erasure.sql")
#: When the rows of raw tables happened, by the owner's clock (a grant's id is its time). What has no time here or below
#: goes whole: its times may be those of a copy whose clock is ahead.
RAW_TIMES = {
    "decisions": "at",
    "conflicts": "at",
    "grants": "issued_at",
    "settlements": "fromUnixTimestamp64Micro(toInt64(grant_id), 'UTC')",
}
#: The time of which totals are, and after how many seconds nobody adds to them from what happened later: a decision may
#: name a grant that was lent in the hour before. Those of a time that began before an erasure go; what the caller did
#: later in that time is counted again.
TOTALS = {
    "settled_minutes": ("minute", 60),
    "fairness": ("minute", 60),
    "grant_minutes": ("minute", 60),
    "live": ("minute", 60),
    "signals": ("minute", 60),
    "disagreements": ("minute", 60),
    "quarters": ("quarter", 900),
    "quarter_days": ("toDateTime(day, 'UTC') + part * 21600", 21_600),
    "ledger_hours": ("hour", 7_200),
    "settled_days": ("day", 86_400),
}
#: Those that are summed from others: these are deleted first, or they would be summed again.
SUMMED = ("quarters", "quarter_days", "ledger_hours", "settled_days")
#: Control events name a caller inside their text.
_IN_CONTROL = ("JSONExtractString(body, 'caller')", "JSONExtractString(body, 'subject')")
#: Where some rows are nobody's, and say '' in these places: a caller may be called that. {0} is the comparison.
_SOMEBODYS = {
    "control": " OR ".join(
        f"JSONHas(body, '{key}') AND JSONExtractString(body, '{key}') {{0}}" for key in ("caller", "subject")
    ),
    "disagreements": "kind = 'live' AND caller {0}",
    "live": "kind IN ('usage', 'caller') AND caller {0}",
    "signals": "kind = 'caller' AND caller {0} OR kind = 'hot' AND name {0}",
}
#: Decisions of others that a bucket of the caller paid for too: they stay, with a mark in place of its name.
CHARGES = "decisions.charges"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a table names callers: in which columns or expressions, and whether it is to be read with FINAL."""

    table: str
    names: tuple[str, ...]
    final: bool

    @property
    def is_raw(self) -> bool:
        """Whether its rows are facts, each of a moment."""
        return self.table in RAW_TIMES

    def of(self, comparison: str) -> str:
        """The condition under which a row is of whom the comparison says."""
        if self.table in _SOMEBODYS:
            return _SOMEBODYS[self.table].format(comparison)
        return " OR ".join(f"{name} {comparison}" for name in self.names)

    def in_past(self, of: Past | None) -> str:
        """The further condition that a row goes with this past; empty where all of the caller's rows do."""
        if of is not None and self.is_raw:
            return f" AND {of.rows(self.table, RAW_TIMES[self.table])}"
        if of is not None and self.table in TOTALS:
            return f" AND {of.began(TOTALS[self.table][0])}"
        return ""

    def over(self, of: Past) -> str:
        """The same, that it may not be there whatever the caller did since; only of what has a time."""
        return self.in_past(of) if self.is_raw else f" AND {of.ended(*TOTALS[self.table])}"


def places(store: Store) -> list[Place]:
    """Every table that has a caller in its rows, whichever part of the system made it."""
    found = [
        Place(str(table), tuple(sorted(columns)), bool(final))
        for table, columns, final in store.rows(_QUERIES["callers_tables"].sql)
    ]
    return [*found, Place("control", _IN_CONTROL, final=True)]


def counted(store: Store, caller: str, of: Past | None = None) -> dict[str, int]:
    """How many rows each table has of a caller, or that go with its past; tables without any are left out."""
    counts = {place.table: _count(store, place, caller, place.in_past(of)) for place in places(store)}
    counts[CHARGES] = int(store.rows(_charged("{caller:String}", of), {"caller": caller})[0][0])
    counts["dead_letters"] = letters_of(store, caller).named
    return {table: rows for table, rows in counts.items() if rows}


def left(store: Store, caller: str, of: Past) -> dict[str, int]:
    """What there is of an erased caller that may not be.

    Of one of whom nothing is on record since, where that would still be there: anything at all. Of any other: facts of
    its past, and totals of times that were over by then.
    """
    found = counted(store, caller)
    timed = [place for place in places(store) if (place.is_raw or place.table in TOTALS) and place.table in found]
    past = {place.table: _count(store, place, caller, place.over(of)) for place in timed}
    if all(past[place.table] == found[place.table] for place in timed if place.is_raw) and would_be_there(store, of):
        return found
    past[CHARGES] = int(store.rows(_charged("{caller:String}", of), {"caller": caller})[0][0])
    return {table: rows for table, rows in past.items() if rows}


def went_on(store: Store, caller: str, of: Past) -> bool:
    """Whether a caller did, or may have done, something since, once the facts of its past are deleted.

    Its totals outlive its facts by years: that there are none says nothing where some were dropped since.
    """
    facts = (place for place in places(store) if place.is_raw)
    return not would_be_there(store, of) or any(_count(store, place, caller, "") for place in facts)


def would_be_there(store: Store, of: Past) -> bool:
    """Whether no fact since was dropped for its age, or by hand."""
    return kept(store).whole(of.before_us, LATEST_US)


def charged(name: str, of: Past | None) -> str:
    """The condition that a bucket of this name paid for a decision of somebody else."""
    in_past = f" AND {of.rows('decisions', RAW_TIMES['decisions'])}" if of is not None else ""
    return f"has(charges.subject, {name}){in_past}"


def _charged(name: str, of: Past | None) -> str:
    # The table and its columns are ours, and so is the name's place.
    return f"SELECT count() FROM decisions FINAL WHERE caller != {name} AND {charged(name, of)}"  # noqa: S608


def _count(store: Store, place: Place, caller: str, further: str) -> int:
    # Tables, columns and expressions are ours; the caller is bound.
    rows = f"{place.table}{' FINAL' if place.final else ''}"
    sql = f"SELECT count() FROM {rows} WHERE ({place.of('= {caller:String}')}){further}"  # noqa: S608  (see above)
    return int(store.rows(sql, {"caller": caller})[0][0])
