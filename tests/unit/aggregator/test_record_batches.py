"""Blocks as Arrow rows: every column, the cuts, and what the tables cannot hold."""

from __future__ import annotations

import numpy as np
import pytest

from aggregator.core.record import batches as record_batches
from aggregator.core.record.batches import cut, decision_batches, months
from aggregator.core.record.blocks import block_batches
from enforcer.types import Reason, Source, outcome_code
from tests.recordblocks import MIDNIGHT_US, SPENT, Made, at, make_block


def test_decision_batches_hold_every_field_of_every_decision() -> None:
    """A field that lands in the wrong row or column is a wrong answer in a dispute."""
    first = make_block(
        [
            Made("b", MIDNIGHT_US + 5, cost=2, remaining=7, k=1, grant_id=11),
            Made("a", MIDNIGHT_US + 6, "/x", "burst", "free", SPENT, 3, 0, 250, 9, 12, 30, "day"),
        ],
        copy_id="gw-2",
        epoch=2**63 + 1,
        first_seq=40,
    )
    second = make_block([Made("a", MIDNIGHT_US + 1, code=outcome_code(Source.CAP, Reason.CEILING))], first_seq=2)

    (batch,) = decision_batches([at(first, 100, partition=3), at(second, 7)])

    assert "decisions" == batch.table
    rows = batch.rows.to_pylist()
    assert [("b", 40, 3, 100), ("a", 41, 3, 100), ("a", 2, 0, 7)] == [
        (row["caller"], row["seq"], row["log_partition"], row["log_offset"]) for row in rows
    ]
    refused = rows[1]
    at_time = refused.pop("at")
    assert MIDNIGHT_US + 6 == round(at_time.timestamp() * 1e6)
    assert {
        "caller": "a",
        "copy_id": "gw-2",
        "epoch": 2**63 + 1,
        "seq": 41,
        "scope": "/x",
        "limit": "burst",
        "plan": "free",
        "rate_per_s": 10.0,
        "burst": 20,
        "per": "day",
        "allowed": False,
        "source": 0,
        "reason": 1,
        "cost_tokens": 3,
        "remaining_tokens": 0,
        "retry_after_ms": 250,
        "policy_version": 9,
        "grant_id": 12,
        "k": 30,
        "log_partition": 3,
        "log_offset": 100,
    } == refused
    assert (3, 5, False) == (rows[2]["source"], rows[2]["reason"], rows[2]["allowed"])
    assert rows[0]["allowed"]


def test_decision_batches_leave_a_limits_figures_out_where_all_name_their_plans_own() -> None:
    """Nearly every batch: nobody pays for columns that say what the live totals say."""
    (batch,) = decision_batches([at(make_block([Made(limit="rate"), Made("b", limit="rate")]), 0)])
    assert not {"rate_per_s", "burst", "per"} & set(batch.rows.column_names)


def test_decision_batches_never_join_two_days() -> None:
    """An INSERT over midnight is two parts, and two parts are not atomic."""
    block = make_block([Made(at_us=MIDNIGHT_US - 1), Made(at_us=MIDNIGHT_US), Made(at_us=MIDNIGHT_US - 2)])

    batches = decision_batches([at(block, 0)])

    assert [[0, 2], [1]] == [batch.rows.column("seq").to_pylist() for batch in batches]


def test_decision_batches_hold_at_most_a_million_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A longer INSERT would become several parts."""
    monkeypatch.setattr(record_batches, "MAX_ROWS", 2)
    batches = decision_batches([at(make_block([Made()] * 5), 0)])
    assert [[0, 1], [2, 3], [4]] == [batch.rows.column("seq").to_pylist() for batch in batches]


def test_decision_batches_keep_names_once() -> None:
    """The database refuses a dictionary with a repeated value, and with it everybody's rows."""
    blocks = [at(make_block([Made("a"), Made("b")], copy_id=copy), 0) for copy in ("x", "y", "x")]
    (batch,) = decision_batches(blocks)
    for name in ("caller", "scope", "limit", "plan", "copy_id"):
        words = batch.rows.column(name).combine_chunks().dictionary.to_pylist()
        assert sorted(set(words)) == sorted(words)


def test_decision_batches_skip_heartbeats_that_blocks_keep() -> None:
    """An empty block says how far a copy is complete; it has no decision."""
    empty = at(make_block([], first_seq=9), 5)
    assert [] == decision_batches([empty])
    (batch,) = block_batches([empty])
    assert [(9, 0, 5)] == [(r["first_seq"], r["decisions"], r["log_offset"]) for r in batch.rows.to_pylist()]


def test_block_batches_never_join_two_months() -> None:
    """The table is partitioned by month."""
    new_year_us = MIDNIGHT_US - 86_400_000_000
    blocks = [at(make_block([], sealed_at_us=new_year_us + shift), number) for number, shift in enumerate((0, -1, 1))]
    assert [[1], [0, 2]] == [batch.rows.column("log_offset").to_pylist() for batch in block_batches(blocks)]


def test_months_count_calendar_months() -> None:
    """A cut in the wrong place makes two parts of one INSERT."""
    unix_us = np.array([0, 31 * 86_400_000_000 - 1, 31 * 86_400_000_000], dtype=np.int64)
    assert [0, 0, 1] == months(unix_us).tolist()


def test_cut_keeps_the_order_inside_a_piece() -> None:
    """Nothing is lost or doubled by cutting."""
    (batch,) = block_batches([at(make_block([], first_seq=seq), seq) for seq in range(6)])
    pieces = list(cut(batch.rows, np.array([2, 1, 2, 1, 3, 2], dtype=np.int64)))
    assert [[1, 3], [0, 2, 5], [4]] == [piece.column("first_seq").to_pylist() for piece in pieces]
