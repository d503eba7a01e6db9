"""The largest and smallest values that a reader lets through stand in the tables as they were said."""

from __future__ import annotations

from typing import Any

import msgspec

from aggregator.migrate import migrate
from aggregator.store_clickhouse import ClickHouseStore
from enforcer.types import Basis, Charge, Plan, Reason, Source, Standing, Terms, Verdict, outcome_code
from stream.contract.block import Totals
from stream.contract.codec import encode_block
from stream.contract.control import WouldRefuse, encode_control
from stream.contract.layout import I64_MAX, U32_MAX, U64_MAX
from stream.contract.topics import CONTROL, DECISIONS, GRANTS
from tests.recordable import batches_of, taken
from tests.recordblocks import MIDNIGHT_US

_LAST_US = 4_102_444_799_999_999
_CODES = [outcome_code(source, reason) for source in Source for reason in Reason]
_TEXT = "\0\n'\"\\\N{SNOWMAN}" + "x" * 5_000


def _block(at_us: int, epoch: int, *, high: bool) -> bytes:
    number = U32_MAX if high else 0
    also = (Charge(_TEXT, "", I64_MAX),) if high else ()
    plan = Plan(_TEXT if high else "", 1e9 if high else 1e-9, number)
    basis = Basis(Standing(_TEXT, Terms("daily", plan, number, "day")), "", I64_MAX if high else 0, number, also)
    tokens = I64_MAX if high else -(2**63)
    verdicts = [
        Verdict(2**62 + place, 0, basis, not code & 15, code, number, tokens, 0 if not code & 15 else 2**62)
        for place, code in enumerate(_CODES)
    ]
    where: dict[str, Any] = {"copy_id": "g" * 63, "epoch": epoch, "first_seq": 2**62, "sealed_at_us": at_us}
    return encode_block(
        verdicts, **where, clock_offset_ns=at_us * 1000, prev_hash=b"\xff" * 16, owner_offset_us=0,
        before=Totals(9, 9, 2**63),
    )  # fmt: skip


def _facts(at_us: int, number: int, left: float, adjusted: int) -> bytes:
    small = min(number, U32_MAX)
    grant = [_TEXT, "", small, number, number, small, at_us, at_us, left]
    settled = [[_TEXT, "", f"{_TEXT}/{U64_MAX}", at_us, number, True, cause, at_us, adjusted] for cause in range(5)]
    costs = [[_TEXT, _TEXT, number, number, number, at_us]]
    return msgspec.msgpack.encode(["tallygate.facts", 2, "g", U64_MAX, [grant], settled, costs])


def test_edges_of_all_that_is_taken_can_be_inserted_in_every_table(database_dsn: str) -> None:
    """What the database refuses is tried for ever, and nothing behind it is recorded."""
    event: dict[str, Any] = {
        "caller": _TEXT,
        "scope": "",
        "limit": "",
        "policy_version": I64_MAX,
        "requests": I64_MAX,
        "cost": I64_MAX,
    }
    messages = [
        (DECISIONS.name, _block(0, 0, high=False)),
        (DECISIONS.name, _block(_LAST_US, U64_MAX, high=True)),
        (GRANTS.name, _facts(0, 0, -1e18, -(2**63))),
        (GRANTS.name, _facts(_LAST_US, I64_MAX, 1e18, I64_MAX)),
        (CONTROL.name, encode_control(WouldRefuse(copy_id="g", epoch=U64_MAX, at_us=_LAST_US, **event))),
        (CONTROL.name, b"\xff\0"),
    ]
    pending, reasons = taken(messages, partition=65_535)
    assert 1 == len(reasons), reasons
    migrate(database_dsn)
    store = ClickHouseStore.connect(database_dsn)
    try:
        for batch in batches_of(pending):
            store.insert(batch.table, batch.stamped(MIDNIGHT_US))
        found = {
            table: store.rows(f"SELECT count() FROM {table} FINAL")[0][0]
            for table in (
                "decisions",
                "conflicts",
                "terms",
                "grants",
                "settlements",
                "cost_changes",
                "control",
                "blocks",
            )
        }
        said = store.rows(
            "SELECT max(burst), max(rate_per_s), min(remaining_tokens), max(epoch), max(k) FROM decisions"
        )
        adjusted = store.rows("SELECT min(adjusted_tokens), max(adjusted_tokens), max(epoch) FROM settlements")
    finally:
        store.close()
    both = 2 * len(_CODES)
    assert {"decisions": both, "conflicts": both, "terms": 2, "grants": 2, "settlements": 10, "cost_changes": 2,
            "control": 1, "blocks": 2} == found  # fmt: skip
    assert (U32_MAX, 1e9, -(2**63), U64_MAX, U32_MAX) == said[0]
    assert (-(2**63), I64_MAX, U64_MAX) == adjusted[0]
