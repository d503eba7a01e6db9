"""The journal of flushes: what it says, and where it lets a reader begin."""

from __future__ import annotations

import pytest

from aggregator.core.record.journal import Stretch, begin_at, journal_batch, minutes_of, stored_ends
from stream.contract.topics import DECISIONS, GRANTS
from tests.recordblocks import MIDNIGHT_US, Made, at, make_block

_MINUTE_US = 60_000_000
_MIDNIGHT = MIDNIGHT_US // _MINUTE_US


def _block_at(*at_us: int) -> list[Made]:
    return [Made(at_us=one) for one in at_us]


def test_journal_names_the_minutes_of_each_partitions_new_decisions() -> None:
    """The minutes that must be counted again, and no others: late ones too, over midnight and month."""
    new = [
        at(make_block(_block_at(MIDNIGHT_US + 1, MIDNIGHT_US - 1)), 5),
        at(make_block(_block_at(MIDNIGHT_US, MIDNIGHT_US + 5 * _MINUTE_US, MIDNIGHT_US + _MINUTE_US)), 6),
        at(make_block(_block_at(MIDNIGHT_US + 9 * _MINUTE_US)), 5, partition=2),
    ]
    stretches = [
        Stretch("id", DECISIONS.name, 0, 4, 9),
        Stretch("id", DECISIONS.name, 2, 5, 6),
        Stretch("other", GRANTS.name, 0, 1, 2),
    ]
    (batch,) = journal_batch(stretches, new)
    assert "recorded" == batch.table
    assert [
        ("id", DECISIONS.name, 0, 4, 9, 5, [_MIDNIGHT - 1, _MIDNIGHT, _MIDNIGHT + 1, _MIDNIGHT + 5]),
        ("id", DECISIONS.name, 2, 5, 6, 1, [_MIDNIGHT + 9]),
        ("other", GRANTS.name, 0, 1, 2, 0, []),
    ] == [
        tuple(
            row[name]
            for name in (
                "log_id",
                "topic",
                "log_partition",
                "first_offset",
                "next_offset",
                "decisions",
                "minutes",
            )
        )
        for row in batch.rows.to_pylist()
    ]


def test_journal_of_nothing_is_no_row() -> None:
    """An INSERT of no rows is none."""
    assert [] == journal_batch([], [])
    assert [] == minutes_of([])


@pytest.mark.parametrize(
    ("committed", "stored_until", "begins"),
    [
        (-1001, 500, 0),
        (500, 500, 500),
        (499, 500, 499),
        (501, 500, 0),
        (500, 0, 0),
        (0, 0, 0),
    ],
)
def test_begin_at_believes_the_group_only_as_far_as_the_record(committed: int, stored_until: int, begins: int) -> None:
    """An offset of another log, or of another database, would pass over messages for ever."""
    assert begins == begin_at(committed, stored_until)


def test_stored_ends_are_of_the_log_of_today() -> None:
    """A topic that was made anew begins at 0, whatever an older log of its name said."""
    rows = [
        ("d", 0, "old", 900),
        ("d", 0, "new", 40),
        ("d", 0, "", 1_000),
        ("d", 1, "", 77),
        ("d", 2, "old", 5),
        ("g", 0, "new", 3),
    ]
    assert {("d", 0): 40, ("d", 1): 77} == stored_ends(rows, {"d": "new"})
