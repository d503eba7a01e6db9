"""Rows as the recorder writes them give back the very bytes of their block, whoever shares the page with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from aggregator.core.proof.chain import BlockRow
from aggregator.core.proof.differences import differences
from aggregator.core.proof.holes import Numbers
from aggregator.core.proof.rebuilding import Figures, RecordedRows, TermsKey, check_block, keys_of, rows_of
from aggregator.core.record.acceptance import accept_block
from aggregator.core.record.batches import PlacedBlock, decision_batches
from enforcer.types import Plan, Reason, Source, Verdict, outcome_code
from stream.contract.block import BlockPlan
from stream.contract.codec import decode_block, encode_block
from tests.verdicts import basis, verdict

OFFSET_NS = 1_794_991_556_000_000_000
SOLD = BlockPlan("standard", 100.0, 200)
SPENT = outcome_code(Source.SHARED, Reason.SPENT)


def sealed(copy_id: str, first_seq: int, count: int, *, owner_offset_us: int | None = None, epoch: int = 3) -> bytes:
    """A block of some callers, one in four refused."""
    taken: list[Verdict] = []
    for seq in range(first_seq, first_seq + count):
        on = basis(
            f"acct-{seq % 3}", f"GET /{seq % 2}", limit="rate", plan=Plan("standard", 100.0, 200), grant_id=seq // 5
        )
        code = SPENT if seq % 4 == 0 else 0
        taken.append(verdict(seq, on=on, code=code, cost=1 + seq % 9, retry_after_ms=seq % 4 == 0))
    return encode_block(
        taken,
        copy_id=copy_id,
        epoch=epoch,
        first_seq=first_seq,
        sealed_at_us=1_795_991_560_000_000,
        clock_offset_ns=OFFSET_NS,
        owner_offset_us=owner_offset_us,
    )


def recorded(*sealed_blocks: bytes) -> tuple[list[BlockRow], pa.Table]:
    """What the record has of some blocks: their rows of `blocks`, and their decisions as the query gives them."""
    accepted = [accept_block(data, appended_us=None) for data in sealed_blocks]
    placed = [PlacedBlock(one.block, 0, at, shift_us=one.shift_us) for at, one in enumerate(accepted)]
    tables = [as_asked(batch.rows) for batch in decision_batches(placed)]
    rows = [
        BlockRow(
            b.copy_id, b.epoch, b.first_seq, b.count, b.sealed_at_us, b.prev_hash, b.block_hash, int(b.at_us.min()),
            int(b.at_us.max()), one.shift_us, b.clock_offset_ns, b.owner_offset_us, b.version, b.admitted_total or 0,
            b.refused_total or 0, b.cost_total or 0, 0, 0, "", 0, at,
        )
        for at, one in enumerate(accepted)
        for b in [one.block]
    ]  # fmt: skip
    return rows, pa.concat_tables(tables).sort_by([(name, "ascending") for name in ("copy_id", "epoch", "seq")])


def as_asked(rows: pa.Table) -> pa.Table:
    """The columns that `decisions_of` selects, with what the table puts where a batch leaves a column out."""
    count = rows.num_rows
    code = rows.column("source").to_numpy() * 16 + rows.column("reason").to_numpy()
    kind = pa.list_(pa.struct({"subject": pa.string(), "limit": pa.string(), "grant_id": pa.uint64()}))
    columns: dict[str, Any] = {name: rows.column(name) for name in rows.column_names}
    columns |= {
        "copy_id": rows.column("copy_id").cast(pa.string()),
        "at_us": rows.column("at").cast(pa.int64()),
        "code": pa.array(code.astype(np.uint8)),
        "allowed": rows.column("allowed").cast(pa.uint8()),
        "rate_per_s": pa.array([0.0] * count),
        "burst": pa.array([0] * count, pa.uint32()),
        "per": pa.array([""] * count),
        "charges": pa.array([[]] * count, kind),
    }
    return pa.table(columns)


def shared(rows: RecordedRows, *plans: BlockPlan) -> Figures:
    """Figures that all callers have; with several plans, each caller has all of them."""
    keys = keys_of(rows)
    if len(plans) == 1:
        return Figures({key[1:]: plans[0] for key in keys}, {})
    return Figures({}, dict.fromkeys(keys, plans))


def test_every_block_of_a_page_is_proved_by_its_own_rows() -> None:
    """Copies share names, and the order of a page is that of bytes, not of first sight."""
    blocks, table = recorded(
        sealed("gw-b", 0, 40),
        sealed("gw-B", 7, 30, owner_offset_us=-400 * 86_400_000_000),
        sealed("gw-b", 40, 25),
        sealed("gw-", 0, 8),
        sealed("gw-", 0, 9, epoch=2**64 - 1),
        sealed("gw-", 0, 10, epoch=2**64 - 2),
    )
    rows = rows_of(table)
    for block in blocks:
        checked = check_block(block, rows, shared(rows, SOLD))
        assert checked.agrees, checked
    assert check_block(blocks[0]._replace(copy_id="gw-x"), rows, shared(rows, SOLD)).missing == [Numbers(0, 40)]


@pytest.mark.parametrize("plans", [[SOLD, replace(SOLD, burst=7)], [replace(SOLD, rate_per_s=1.0), SOLD]])
def test_terms_that_are_known_in_several_forms_are_tried(plans: Sequence[BlockPlan]) -> None:
    """A policy may have been changed without a new version: the block knows which form it meant."""
    (block,), table = recorded(sealed("gw-b", 0, 40))
    rows = rows_of(table)
    assert check_block(block, rows, shared(rows, *plans)).agrees
    checked = check_block(block, rows, shared(rows, replace(SOLD, burst=7)))
    assert (False, "") == (checked.agrees, checked.misread)
    checked = check_block(block, rows, Figures({}, {}))
    assert (False, "the terms that a decision names are in no row of table terms") == (checked.agrees, checked.misread)
    assert TermsKey("acct-0", "rate", 7, "standard") in keys_of(rows)


def test_missing_and_repeated_rows_are_told_apart() -> None:
    """One is a loss, the other an invention."""
    (block,), table = recorded(sealed("gw-b", 0, 10))
    short = rows_of(pa.concat_tables([table.slice(0, 3), table.slice(5, 4)]))
    checked = check_block(block, short, shared(short, SOLD))
    assert ([Numbers(3, 5), Numbers(9, 10)], 0) == (checked.missing, checked.repeated)
    twice = rows_of(pa.concat_tables([table.slice(0, 3), table.slice(2)]))
    checked = check_block(block, twice, shared(twice, SOLD))
    assert ([], 1, False) == (checked.missing, checked.repeated, checked.agrees)


def test_differences_name_the_field_and_both_values() -> None:
    """Whoever disputes a row wants to see what it was."""
    was = decode_block(sealed("gw-b", 0, 10))
    assert [] == list(differences(was, was))
    cost, at_us = was.cost.copy(), was.at_us.copy()
    cost[4], at_us[4] = 99, at_us[4] + 1
    found = replace(was, cost=cost, at_us=at_us, cost_total=1, owner_offset_us=5)
    assert [
        "owner_offset_us of the block is 5, was None",
        f"cost_total of the block is 1, was {was.cost_total}",
        f"decision 4: at_us is {at_us[4]}, was {was.at_us[4]}",
        "decision 4: cost_tokens is 99, was 5",
    ] == list(differences(was, found))
