"""Which rows of `fairness` are written: those that say something new, and never with an earlier `full_at`."""

from __future__ import annotations

import pyarrow as pa

from aggregator.core.fairness.buckets import Buckets, Unjudged
from aggregator.core.fairness.causes import Cause, counted, first_causes
from aggregator.core.fairness.layout import MINUTE_US, Carried
from aggregator.core.fairness.replay import BEST
from aggregator.core.fairness.table import changed_rows, fairness_rows
from tests.replaying import SPENT, START_US, One, decided


def table_of(*ones: One, unjudged: int = 0) -> pa.Table:
    """The rows of one bucket, and of a quota that refused so often."""
    columns = decided([ones], (1.0, 10))
    quota = [Unjudged("acme", "day", START_US // MINUTE_US, 0, unjudged)] if unjudged else []
    buckets = Buckets([("acme", "rate")], columns, columns.starts, quota)
    replayed = BEST.replay(columns, Carried.unseen(1))
    return fairness_rows(buckets, replayed, counted(first_causes(buckets, replayed), replayed))


def stored(rows: pa.Table) -> pa.Table:
    """As the engine gives it back: times as seconds, in an order of its own."""
    for name in ("minute", "busiest_at"):
        seconds = rows[name].cast(pa.int64()).cast(pa.uint32())
        rows = rows.set_column(rows.column_names.index(name), name, seconds)
    return rows.take(pa.array(range(rows.num_rows - 1, -1, -1)))


def test_rows_that_stand_there_already_are_not_written_again() -> None:
    """A settler that repeats a round must not make a new version of everything."""
    rows = table_of(One(0), One(1, SPENT), One(MINUTE_US), unjudged=3)
    changed, moved = changed_rows(rows, stored(rows))
    assert (0, set()) == (changed.num_rows, moved)
    assert [False] == [one["judged"] for one in rows.to_pylist() if one["limit"] == "day"]


def test_only_a_changed_last_state_concerns_the_minutes_after() -> None:
    """The buckets are replayed on from there; a changed minute that came to nothing is written, and that is all."""
    before = table_of(One(0), One(1, SPENT), One(10 * MINUTE_US))
    after = table_of(One(0, cost=2), One(1, SPENT), One(10 * MINUTE_US))
    changed, moved = changed_rows(after, stored(before))
    assert (1, set()) == (changed.num_rows, moved)
    changed, moved = changed_rows(table_of(One(0, cost=2), One(1, SPENT)), stored(before))
    assert (1, {("acme", "rate")}) == (changed.num_rows, moved)
    assert {("acme", "rate")} == changed_rows(before, before.slice(0, 0))[1]


def test_full_at_never_falls_from_one_version_of_a_row_to_the_next() -> None:
    """The query that finds states by it must not find an older version where the newer one does not match."""
    debt, small = table_of(*[One(n) for n in range(500)]), table_of(One(0))
    assert debt["full_at"][0].as_py() > small["full_at"][0].as_py()
    changed, _ = changed_rows(small, stored(debt))
    assert debt["full_at"].to_pylist() == changed["full_at"].to_pylist()
    assert small["marks"].to_pylist() == changed["marks"].to_pylist()


def test_columns_of_causes_are_those_of_the_register() -> None:
    """The table, the audit and the pages name causes alike."""
    named = [name.removeprefix("wrongful_") for name in table_of(One(0)).column_names if name.startswith("wrongful_")]
    assert [cause.name.lower() for cause in Cause] == named
