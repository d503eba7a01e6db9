"""What a replay writes of the live totals: nothing of a caller's past that was erased, not even its name."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from aggregator.core.record.erased import Erased, Erasure, who_hash
from aggregator.replay.live import sifted

_MINUTE = datetime(2026, 11, 30, 10, 0, tzinfo=UTC)
_SALT = b"s" * 16


def test_totals_of_an_erased_past_are_not_written_again() -> None:
    """The log has them until its own retention takes them; a rebuilt table would bring the name back for a year."""
    before_us = int(_MINUTE.timestamp()) * 1_000_000 + 1
    known = Erased([Erasure(9, before_us, _SALT, who_hash(_SALT, "gone"))])
    later = _MINUTE.replace(minute=1)
    rows = pa.table(
        {
            "kind": ["usage", "caller", "usage", "usage", "fleet"],
            "caller": pa.array(["gone", "gone", "gone", "other", ""]).dictionary_encode(),
            "minute": pa.array([_MINUTE, _MINUTE, later, _MINUTE, _MINUTE], pa.timestamp("s", "UTC")),
            "offered": [1, 0, 2, 3, 6],
        }
    )
    left = sifted(rows, known)
    assert [2, 3, 6] == left.column("offered").to_pylist()
    past = sifted(rows.filter(pa.array([True, True, False, True, True])), known)
    assert ["other", ""] == past.column("caller").combine_chunks().dictionary.to_pylist(), "no dictionary has the name"
    assert rows is sifted(rows, Erased())
