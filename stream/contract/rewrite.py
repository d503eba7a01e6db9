"""A decoded block to its bytes again: what was read from tables can be compared with what a copy once sealed.

Reads no clock and talks to nobody. It takes the columns of a block in whatever order its lists stand.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar

import numpy as np

from stream.contract.block import Bases, DecisionBlock, Totals
from stream.contract.canonical import first_appearances, unequal_values
from stream.contract.columns import Ints
from stream.contract.layout import VERSION, UnencodableBlock
from stream.contract.writing import (
    BaseColumns,
    ChargeRow,
    DecisionColumns,
    Heading,
    PlanRow,
    write_block,
    write_heartbeat,
)

_H = TypeVar("_H", bound=Hashable)


def encode_columns(block: DecisionBlock) -> bytes:
    """Write a decoded block again.

    The bytes are a function of what the block says: its header fields and, in order of seq, its decisions. For every
    block of version 3 that a copy has sealed they are the bytes of that block. `block_hash` is not looked at.

    Raises:
        UnencodableBlock: the block is of another version, whose bytes do not follow from what it says; or a value has
            no room.
    """
    totals = (block.admitted_total, block.refused_total, block.cost_total)
    admitted, refused, cost = totals
    if block.version != VERSION or admitted is None or refused is None or cost is None:
        raise UnencodableBlock(f"version is {block.version}; only a block of version {VERSION} can be written again")
    heading = Heading(
        block.copy_id,
        block.epoch,
        block.first_seq,
        block.sealed_at_us,
        block.clock_offset_ns,
        block.prev_hash,
        block.owner_offset_us,
    )
    if not block.count:
        return write_heartbeat(heading, Totals(admitted, refused, cost))
    used, basis = first_appearances(block.basis)
    return write_block(heading, _decisions(block, basis), _bases(block.bases, used), Totals(admitted, refused, cost))


def _decisions(block: DecisionBlock, basis: Ints) -> DecisionColumns:
    refused = (block.code & 15).nonzero()[0]
    return DecisionColumns(
        basis=basis,
        at_us=block.at_us,
        code=block.code.astype(np.int64),
        cost=block.cost.astype(np.int64),
        remaining=block.remaining,
        refused=refused,
        wait_ms=block.retry_after_ms.take(refused).astype(np.int64),
    )


def _bases(bases: Bases, used: Ints) -> BaseColumns:
    charges, charged = _in_order(_charges(bases), used)
    callers, caller = _in_order(bases.callers, bases.caller.take(used))
    scopes, scope = _in_order(bases.scopes, bases.scope.take(used))
    limits, limit = _in_order(bases.limits, bases.limit.take(used))
    plans, plan = _in_order(_plans(bases), bases.plan.take(used))
    return BaseColumns(
        callers=callers,
        scopes=scopes,
        limits=limits,
        plans=plans,
        charges=charges,
        caller=caller,
        scope=scope,
        limit=limit,
        plan=plan,
        policy_version=bases.policy_version.take(used).astype(np.int64),
        grant_id=bases.grant_id.take(used).astype(np.int64),
        k=bases.k.take(used).astype(np.int64),
        charged=charged,
    )


def _plans(bases: Bases) -> list[PlanRow]:
    return [(plan.name, plan.rate_per_s, plan.burst, plan.per) for plan in bases.plans]


def _charges(bases: Bases) -> list[tuple[ChargeRow, ...]]:
    """The further charges of each basis."""
    found: list[tuple[ChargeRow, ...]] = [()] * len(bases.caller)
    for other in bases.also:
        found[other.basis] += ((other.subject, other.limit, other.grant_id),)
    return found


def _in_order(values: Sequence[_H], index: Ints) -> tuple[list[_H], Ints]:
    """The values that the index points to, each once, in order of first appearance; and the index into these."""
    used, places = first_appearances(index)
    return unequal_values([values[at] for at in used.tolist()], places)
