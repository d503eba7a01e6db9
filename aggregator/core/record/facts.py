"""Grants, settlements, control events and conflicts as Arrow rows, one batch a table partition.

There are few of them beside the decisions, so they are built row by row. Reads no clock and talks to no database.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from msgspec import structs

from aggregator.core.record.acceptance import END_OF_TIME_US, shift_of
from aggregator.core.record.batches import Batch, PlacedBlock, cut, decision_batches, months
from enforcer.sink import CostChanged, GrantSettled
from stream.contract.facts import FactBlock

_Stated = TypeVar("_Stated", GrantSettled, CostChanged)
_MEMBER = re.compile(r"(?P<copy_id>[^/]+)/(?P<epoch>[0-9]{1,20})\Z")
_TIME = pa.timestamp("us", "UTC")
_GRANTS = pa.schema(
    {
        "caller": pa.string(),
        "limit": pa.string(),
        "grant_id": pa.uint64(),
        "copy_id": pa.string(),
        "epoch": pa.uint64(),
        "issued_at": _TIME,
        "expires_at": _TIME,
        "size_tokens": pa.uint64(),
        "k": pa.uint32(),
        "tokens_left": pa.float64(),
        "policy_version": pa.uint32(),
        "log_partition": pa.uint16(),
        "log_offset": pa.uint64(),
    }
)
_SETTLEMENTS = pa.schema(
    {
        "caller": pa.string(),
        "limit": pa.string(),
        "grant_id": pa.uint64(),
        "spent_tokens": pa.uint64(),
        "adjusted_tokens": pa.int64(),
        "final": pa.bool_(),
        "cause": pa.uint8(),
        "copy_id": pa.string(),
        "epoch": pa.uint64(),
        "at": _TIME,
        "log_partition": pa.uint16(),
        "log_offset": pa.uint64(),
    }
)
_COST_CHANGES = pa.schema(
    {
        "caller": pa.string(),
        "scope": pa.string(),
        "copy_id": pa.string(),
        "epoch": pa.uint64(),
        "requests": pa.uint64(),
        "charged_tokens": pa.uint64(),
        "refunded_tokens": pa.uint64(),
        "at": _TIME,
        "log_partition": pa.uint16(),
        "log_offset": pa.uint64(),
    }
)
_CONTROL = pa.schema(
    {
        "kind": pa.string(),
        "copy_id": pa.string(),
        "epoch": pa.uint64(),
        "at": _TIME,
        "body": pa.string(),
        "log_partition": pa.uint16(),
        "log_offset": pa.uint64(),
    }
)
_CONFLICT_COLUMNS = (
    "copy_id",
    "epoch",
    "seq",
    "caller",
    "at",
    "scope",
    "allowed",
    "cost_tokens",
    "log_partition",
    "log_offset",
)


@dataclass(frozen=True, slots=True)
class PlacedFacts:
    """A block of grants and settlements, where in the log it stands, and when the broker appended it (if it says)."""

    facts: FactBlock
    log_partition: int
    log_offset: int
    appended_us: int | None = None


@dataclass(frozen=True, slots=True)
class PlacedControl:
    """One control event: what the table keeps of it, at the time that counts; where it stands, and when it came."""

    kind: str
    copy_id: str
    epoch: int
    at_us: int
    body: str
    log_partition: int
    log_offset: int
    appended_us: int | None = None


def facts_in_time(facts: FactBlock, appended_us: int | None) -> FactBlock:
    """The facts at the times that count: what a copy states, it states by the owner's clock as far as it knows that.

    One that did not know it, and is ahead, is brought back to the latest time that others vouch for: when the broker
    appended the facts (None if it does not say), or the owner issued the grant.
    """
    if appended_us is None:
        return facts
    return replace(
        facts,
        settlements=[_in_time(one, max(appended_us, one.settlement.grant_id)) for one in facts.settlements],
        costs=[_in_time(one, appended_us) for one in facts.costs],
    )


def _in_time(fact: _Stated, vouched_us: int) -> _Stated:
    shift_us = shift_of(fact.at_us, None, vouched_us)
    return structs.replace(fact, at_us=fact.at_us + shift_us) if shift_us else fact


def why_facts_unrecordable(facts: FactBlock) -> str | None:
    """What in well-formed facts the tables cannot hold, as a sentence; None if nothing."""
    for issued in facts.grants:
        grant = issued.grant
        for name, unix_us in (("issued_at_us", grant.issued_at_us), ("expires_at_us", grant.expires_at_us)):
            if not 0 <= unix_us < END_OF_TIME_US:
                return f"{name} of grant {grant.grant_id} is {unix_us}; allowed: a time from 1970 to 2099"
    for settled in facts.settlements:
        for name, unix_us in (("grant_id", settled.settlement.grant_id), ("at_us", settled.at_us)):
            if not 0 <= unix_us < END_OF_TIME_US:
                return f"{name} of a settlement is {unix_us}; allowed: a time from 1970 to 2099, in microseconds"
        if _member(settled.member) is None:
            return f"member of a settlement is {settled.member[:80]!r}; allowed: copy_id/epoch"
    for cost in facts.costs:
        if not 0 <= cost.at_us < END_OF_TIME_US:
            return f"at_us of a cost is {cost.at_us}; allowed: a time from 1970 to 2099, in microseconds"
    return None


def why_control_unrecordable(event: PlacedControl) -> str | None:
    """The same for a control event."""
    if not 0 <= event.at_us < END_OF_TIME_US:
        return f"at_us is {event.at_us}; allowed: a time from 1970 to 2099"
    return None


def grant_batches(placed: Iterable[PlacedFacts]) -> list[Batch]:
    """One row of `grants` for each grant that was issued."""
    rows = [
        (
            issued.caller,
            issued.limit,
            issued.grant.grant_id,
            one.facts.copy_id,
            one.facts.epoch,
            issued.grant.issued_at_us,
            issued.grant.expires_at_us,
            issued.grant.size,
            issued.grant.k,
            issued.tokens_left,
            issued.policy_version,
            one.log_partition,
            one.log_offset,
        )
        for one in placed
        for issued in one.facts.grants
    ]
    return _monthly("grants", _GRANTS, rows, month_of="issued_at")


def settlement_batches(placed: Iterable[PlacedFacts]) -> list[Batch]:
    """One row of `settlements` for each total that was stated, under the copy whose grant it was."""
    rows = [
        (
            settled.caller,
            settled.limit,
            settled.settlement.grant_id,
            settled.settlement.spent,
            settled.settlement.adjusted,
            settled.settlement.final,
            int(settled.settlement.cause),
            *(_member(settled.member) or ("", 0)),
            settled.at_us,
            one.log_partition,
            one.log_offset,
        )
        for one in placed
        for settled in one.facts.settlements
    ]
    # The table is partitioned by the grant's own time, which its id carries.
    return _monthly("settlements", _SETTLEMENTS, rows, month_of="grant_id")


def cost_batches(placed: Iterable[PlacedFacts]) -> list[Batch]:
    """One row of `cost_changes` for each total of what was charged or refunded after the fact."""
    rows = [
        (
            cost.caller,
            cost.scope,
            one.facts.copy_id,
            one.facts.epoch,
            cost.requests,
            cost.charged,
            cost.refunded,
            cost.at_us,
            one.log_partition,
            one.log_offset,
        )
        for one in placed
        for cost in one.facts.costs
    ]
    return _monthly("cost_changes", _COST_CHANGES, rows, month_of="at")


def control_batches(events: Iterable[PlacedControl]) -> list[Batch]:
    """One row of `control` for each event."""
    rows = [
        (one.kind, one.copy_id, one.epoch, one.at_us, one.body, one.log_partition, one.log_offset) for one in events
    ]
    return _monthly("control", _CONTROL, rows, month_of="at")


def conflict_batches(placed: Sequence[PlacedBlock]) -> list[Batch]:
    """One row of `conflicts` for each decision of these blocks."""
    return [Batch("conflicts", batch.rows.select(_CONFLICT_COLUMNS)) for batch in decision_batches(placed)]


def _monthly(table: str, schema: pa.Schema, rows: list[tuple[Any, ...]], *, month_of: str) -> list[Batch]:
    if not rows:
        return []
    place = schema.get_field_index(month_of)
    unix_us = np.array([row[place] for row in rows], dtype=np.int64)
    return [Batch(table, part) for part in cut(rows_of(schema, rows), months(unix_us))]


def rows_of(schema: pa.Schema, rows: list[tuple[Any, ...]]) -> pa.Table:
    """Rows as columns of this schema."""
    columns = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), schema, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)


def _member(text: str) -> tuple[str, int] | None:
    """Copy and epoch of a grant's holder, ``copy_id/epoch``; None if it is not that."""
    match = _MEMBER.match(text)
    if match is None or int(match["epoch"]) >= 1 << 64:
        return None
    return match["copy_id"], int(match["epoch"])
