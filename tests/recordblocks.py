"""Decoded blocks for tests of the record: small, readable, with every column set apart."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aggregator.core.record.batches import PlacedBlock
from enforcer.types import Reason, Source, outcome_code
from stream.contract.block import Bases, BlockPlan, DecisionBlock

#: 2026-01-02T00:00:00Z.
MIDNIGHT_US = 1_767_312_000_000_000
SPENT = outcome_code(Source.LOCAL, Reason.SPENT)


@dataclass(frozen=True, slots=True)
class Made:
    """One decision as a test writes it."""

    caller: str = "acct-1"
    at_us: int = MIDNIGHT_US + 1
    scope: str = "/cards/{id}"
    limit: str = "sustained"
    plan: str = "pro"
    code: int = 0
    cost: int = 1
    remaining: int = 9
    retry_after_ms: int = 0
    policy_version: int = 3
    grant_id: int = MIDNIGHT_US
    k: int = 4
    per: str = ""


def make_block(
    decisions: Sequence[Made],
    *,
    copy_id: str = "gw-1",
    epoch: int = 7,
    first_seq: int = 0,
    sealed_at_us: int = MIDNIGHT_US + 1_000_000,
) -> DecisionBlock:
    """A block as the decoder would give it; its hash depends on all of its content."""
    return DecisionBlock(
        copy_id=copy_id,
        epoch=epoch,
        first_seq=first_seq,
        count=len(decisions),
        sealed_at_us=sealed_at_us,
        prev_hash=bytes(16),
        block_hash=hashlib.blake2b(
            repr((copy_id, epoch, first_seq, sealed_at_us, decisions)).encode(), digest_size=16
        ).digest(),
        bases=_bases(decisions),
        basis=np.arange(len(decisions), dtype=np.uint32),
        at_us=np.array([made.at_us for made in decisions], dtype=np.int64),
        code=np.array([made.code for made in decisions], dtype=np.uint8),
        cost=np.array([made.cost for made in decisions], dtype=np.uint32),
        remaining=np.array([made.remaining for made in decisions], dtype=np.int64),
        retry_after_ms=np.array([made.retry_after_ms for made in decisions], dtype=np.int32),
    )


def _bases(decisions: Sequence[Made]) -> Bases:
    callers = sorted({made.caller for made in decisions})
    scopes = sorted({made.scope for made in decisions})
    limits = sorted({made.limit for made in decisions})
    plans = sorted({(made.plan, made.per) for made in decisions})
    return Bases(
        callers=callers,
        scopes=scopes,
        limits=limits,
        plans=[BlockPlan(name, 10.0, 20, per) for name, per in plans],
        caller=np.array([callers.index(made.caller) for made in decisions], dtype=np.uint32),
        scope=np.array([scopes.index(made.scope) for made in decisions], dtype=np.uint32),
        limit=np.array([limits.index(made.limit) for made in decisions], dtype=np.uint32),
        plan=np.array([plans.index((made.plan, made.per)) for made in decisions], dtype=np.uint32),
        policy_version=np.array([made.policy_version for made in decisions], dtype=np.uint32),
        grant_id=np.array([made.grant_id for made in decisions], dtype=np.uint64),
        k=np.array([made.k for made in decisions], dtype=np.uint32),
    )


def at(block: DecisionBlock, offset: int, *, partition: int = 0) -> PlacedBlock:
    """The block at a place of the log."""
    return PlacedBlock(block, partition, offset)
