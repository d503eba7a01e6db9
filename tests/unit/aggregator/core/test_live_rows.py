from __future__ import annotations

import pyarrow as pa
import pytest

from aggregator.core.live import rows as live_rows
from aggregator.core.live.arrow import rows_table
from aggregator.core.live.load import Moved, open_shard, put_copies, put_minutes
from aggregator.core.live.rows import cut, group_cuts
from aggregator.core.live.shard import CopyMark, Shard
from aggregator.core.live.totals import fold, missing
from stream.contract.block import DecisionBlock
from tests.live_blocks import FIRST_MINUTE, LARGE, Decision, block
from tests.live_table import MemoryTable


def _add(shard: Shard, *blocks: DecisionBlock) -> Shard:
    for one in blocks:
        minutes, copies = missing(shard, one)
        put_minutes(shard, minutes, usage=[], fleet=[], callers=[])
        put_copies(shard, copies, [])
        fold(shard, one, shard.next_offset)
    return shard


def test_rows_table_ends_each_cut_with_its_progress() -> None:
    """Totals and the offset that they cover stand in one INSERT, or a crash between them counts twice or never."""
    first = _add(Shard(0, "log-a", 0, 7), block([Decision()]))
    second = _add(Shard(3, "log-a", 500, 2), block([Decision()], copy_id="gw-2"))

    rows = rows_table([cut(first), cut(second)]).to_pylist()

    progress = [
        (row["log_partition"], row["scope"], row["version"], row["next_seq"])
        for row in rows
        if row["kind"] == "progress"
    ]
    assert progress == [(0, "log-a", 8, 0), (3, "log-a", 503, 500)]
    assert {(row["log_partition"], row["version"]) for row in rows} == {(0, 8), (3, 503)}


def test_rows_table_is_small_in_memory_and_on_the_wire() -> None:
    """Names travel once, as a dictionary, and not with every row."""
    table = rows_table([cut(_add(Shard(0, "log", 0, 0), block([Decision()])))])

    assert {name for name in table.column_names if pa.types.is_dictionary(table.schema.field(name).type)} == {
        "kind",
        "caller",
        "scope",
        "copy_id",
        "plan",
    }


def test_rows_table_of_an_idle_shard_is_its_progress_alone() -> None:
    """A corrupt block moves the position and changes no total: the position must be stored all the same."""
    shard = Shard(1, "log", 0, 4)
    shard.skip_to(5)

    rows = rows_table([cut(shard)]).to_pylist()

    assert [(row["kind"], row["version"]) for row in rows] == [("progress", 5)]


def test_group_cuts_never_divides_a_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a cut states totals beyond the stored progress, and nobody could take them back after a crash."""
    monkeypatch.setattr(live_rows, "MAX_ROWS", 10)
    cuts = [
        cut(_add(Shard(number, "log", 0, 0), block([Decision(caller=f"c{place}") for place in range(size)])))
        for number, size in enumerate([3, 1, 3, 1])
    ]

    groups = group_cuts(cuts)

    assert [[one.partition for one in group] for group in groups] == [[0], [1], [2], [3]]
    assert [one for group in groups for one in group] == cuts


def test_group_cuts_refuses_a_cut_that_is_not_one_insert(monkeypatch: pytest.MonkeyPatch) -> None:
    """Better a process that ends with a reason than an INSERT that is stored by halves."""
    monkeypatch.setattr(live_rows, "MAX_ROWS", 5)
    one = cut(_add(Shard(2, "log", 0, 0), block([Decision(caller=f"c{place}") for place in range(5)])))

    with pytest.raises(ValueError, match="partition 2 has 13 changed rows; allowed: 5"):
        group_cuts([one])


def test_a_loaded_shard_goes_on_where_the_stored_rows_end() -> None:
    """A takeover must not show: what was read back and added to is what one worker alone would have written."""
    blocks = [
        block([Decision(caller=f"c{place % 3}", code=place % 2, k=place, plan=LARGE) for place in range(9)]),
        block(
            [Decision(caller=f"c{place % 4}", minute=FIRST_MINUTE + place % 2) for place in range(9)], copy_id="gw-2"
        ),
        block([Decision(caller="c1", cost=50)] * 3, first_seq=9),
    ]
    alone, shared = MemoryTable(), MemoryTable()
    alone.write([cut(_add(Shard(0, "log", 0, 0), *blocks))])
    shared.write([cut(_add(Shard(0, "log", 0, 0), *blocks[:2]))])

    heir = open_shard(0, "log", shared.progress(0))
    for one in blocks[heir.next_offset :]:
        minutes, copies = missing(heir, one)
        usage, fleet, callers = shared.minutes(0, minutes)
        put_minutes(heir, minutes, usage=usage, fleet=fleet, callers=callers)
        put_copies(heir, copies, shared.copies(0, copies))
        fold(heir, one, heir.next_offset)
    shared.write([cut(heir)])

    assert shared.totals() == alone.totals()


def test_a_minute_of_many_callers_is_loaded_whole() -> None:
    """Tables start small and grow while they are filled; a real minute has thousands of cells."""
    many = block([Decision(caller=f"c{place}", code=place % 2, k=place) for place in range(500)])
    table = MemoryTable()
    table.write([cut(_add(Shard(0, "log", 0, 0), many))])

    heir = open_shard(0, "log", table.progress(0))
    usage, fleet, callers = table.minutes(0, [FIRST_MINUTE])
    put_minutes(heir, [FIRST_MINUTE], usage=usage, fleet=fleet, callers=callers)
    put_copies(heir, [("gw-1", 1)], table.copies(0, [("gw-1", 1)]))
    again = block([Decision(caller=f"c{place}") for place in range(500)], first_seq=500)
    fold(heir, again, 1)
    table.write([cut(heir)])

    assert {row["offered"] for row in table.of_kind("usage")} == {2}
    assert [row["k_counted"] for row in table.of_kind("caller")] == [max(place, 1) for place in range(500)]


def test_open_shard_starts_versions_above_a_log_that_was_deleted() -> None:
    """The embedded broker forgets its log at every restart: offsets start at 0 again, and must not lose to old rows."""
    rows = [("old-log", 900, 0), ("older-log", 400, 0)]

    shard = open_shard(0, "new-log", rows)

    assert (shard.next_offset, shard.base, shard.version) == (0, 900, 900)
    assert open_shard(0, "new-log", [*rows, ("new-log", 960, 900)]).next_offset == 60


@pytest.mark.parametrize("kind", ["usage", "fleet", "caller"])
def test_put_minutes_refuses_rows_beyond_the_shard(kind: str) -> None:
    """A row of a later position already holds decisions that this shard will add: they would count twice."""
    shard = Shard(0, "log", 0, 5)
    usage = [(6, FIRST_MINUTE, "acme", "s", [0] * 11, [0, 0])] if kind == "usage" else []
    fleet = [(6, FIRST_MINUTE, "s", 1, 0, [0] * 11)] if kind == "fleet" else []
    callers = [(6, FIRST_MINUTE, "acme", "standard", 1.0, 1, 1, ["gw-1"])] if kind == "caller" else []

    with pytest.raises(Moved, match="the table is at version 6, this shard at 5"):
        put_minutes(shard, [FIRST_MINUTE], usage=usage, fleet=fleet, callers=callers)

    assert shard.minutes == {}


def test_put_copies_refuses_rows_beyond_the_shard() -> None:
    """With a seq of a later position, decisions that were never counted here would pass as duplicates."""
    shard = Shard(0, "log", 0, 5)

    with pytest.raises(Moved, match="the table is at version 6, this shard at 5"):
        put_copies(shard, [], [(6, "gw-1", 1, 4, 0, 0)])

    assert shard.copies == {}


def test_put_copies_keeps_what_the_shard_knows_better() -> None:
    """The list of recent copies is read once more after a reload; it must not set a counted seq back."""
    shard = Shard(0, "log", 0, 5)
    shard.copies["gw-1", 1] = CopyMark(next_seq=40)

    put_copies(shard, [("gw-1", 1), ("gw-2", 1)], [(3, "gw-1", 1, 20, 0, 0)])

    assert (shard.copies["gw-1", 1].next_seq, shard.copies["gw-2", 1].next_seq) == (40, 0)
