"""Blocks of decisions for tests of the live totals, built without the codec; and the totals counted the slow way."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from stream.contract.block import Bases, BlockPlan, DecisionBlock
from stream.contract.usage import USAGE_COUNTS

MINUTE_US = 60_000_000
#: 2023-11-14T22:13:00Z, in minutes.
FIRST_MINUTE = 28_333_333

STANDARD = BlockPlan("standard", 100.0, 200)
LARGE = BlockPlan("large", 1000.0, 2000)


@dataclass(frozen=True)
class Decision:
    """One decision, as a row."""

    caller: str = "acme"
    scope: str = "GET /v1/items"
    minute: int = FIRST_MINUTE
    code: int = 0
    cost: int = 1
    plan: BlockPlan = STANDARD
    policy_version: int = 1
    k: int = 1
    grant_id: int = 0
    limit: str = "rate"
    #: When in the minute; None: one microsecond after the decision before it in the block.
    at_us: int | None = None
    retry_after_ms: int = 0


def block(
    decisions: Sequence[Decision],
    *,
    copy_id: str = "gw-1",
    epoch: int = 1,
    first_seq: int = 0,
    sealed_at_us: int | None = None,
) -> DecisionBlock:
    """The decisions as one block, with a dictionary as an encoder would make it."""
    bases = list(dict.fromkeys(_basis(decision) for decision in decisions))
    callers = list(dict.fromkeys(basis[0] for basis in bases))
    scopes = list(dict.fromkeys(basis[1] for basis in bases))
    plans = list(dict.fromkeys(basis[2] for basis in bases))
    at_us = np.array([d.minute * MINUTE_US + _within(d, place) for place, d in enumerate(decisions)], np.int64)
    limits = list(dict.fromkeys(basis[6] for basis in bases))
    u32 = np.uint32
    return DecisionBlock(
        copy_id=copy_id,
        epoch=epoch,
        first_seq=first_seq,
        count=len(decisions),
        sealed_at_us=sealed_at_us if sealed_at_us is not None else int(at_us.max(initial=FIRST_MINUTE * MINUTE_US)),
        prev_hash=bytes(16),
        block_hash=bytes(16),
        bases=Bases(
            callers=callers,
            scopes=scopes,
            limits=limits,
            plans=plans,
            caller=np.array([callers.index(basis[0]) for basis in bases], u32),
            scope=np.array([scopes.index(basis[1]) for basis in bases], u32),
            limit=np.array([limits.index(basis[6]) for basis in bases], u32),
            plan=np.array([plans.index(basis[2]) for basis in bases], u32),
            policy_version=np.array([basis[3] for basis in bases], u32),
            grant_id=np.array([basis[5] for basis in bases], np.uint64),
            k=np.array([basis[4] for basis in bases], u32),
        ),
        basis=np.array([bases.index(_basis(decision)) for decision in decisions], u32),
        at_us=at_us,
        code=np.array([decision.code for decision in decisions], np.uint8),
        cost=np.array([decision.cost for decision in decisions], u32),
        remaining=np.zeros(len(decisions), np.int64),
        retry_after_ms=np.array([decision.retry_after_ms for decision in decisions], np.int32),
    )


def _within(decision: Decision, place: int) -> int:
    return 1 + place if decision.at_us is None else decision.at_us


def _basis(decision: Decision) -> tuple[str, str, BlockPlan, int, int, int, str]:
    return (
        decision.caller,
        decision.scope,
        decision.plan,
        decision.policy_version,
        decision.k,
        decision.grant_id,
        decision.limit,
    )


def decisions_of(one: DecisionBlock) -> list[Decision]:
    """A block's decisions as rows."""
    bases = one.bases
    return [
        Decision(
            caller=bases.callers[bases.caller[basis]],
            scope=bases.scopes[bases.scope[basis]],
            minute=int(one.at_us[place]) // MINUTE_US,
            code=int(one.code[place]),
            cost=int(one.cost[place]),
            plan=bases.plans[bases.plan[basis]],
            policy_version=int(bases.policy_version[basis]),
            k=int(bases.k[basis]),
            grant_id=int(bases.grant_id[basis]),
            at_us=int(one.at_us[place]) % MINUTE_US,
            retry_after_ms=int(one.retry_after_ms[place]),
        )
        for place, basis in enumerate(one.basis.tolist())
    ]


@dataclass
class SlowTotals:
    """The live totals of any number of partitions by the plainest code there is: what the fast code must equal.

    Keys and values are those of the `live` table without its versions.
    """

    usage: dict[tuple[int, int, str, str], Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    fleet: dict[tuple[int, int, str, int, int], Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    copies: dict[tuple[int, int, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    k: dict[tuple[int, int, str], int] = field(default_factory=lambda: defaultdict(int))
    next_seq: dict[tuple[int, str, int], int] = field(default_factory=lambda: defaultdict(int))
    #: When in the minute, and until when, a caller was told last to wait; no part of what is compared.
    told: dict[tuple[int, int, str, str], tuple[int, int]] = field(default_factory=dict, compare=False)

    def add(self, partition: int, one: DecisionBlock) -> None:
        """Count a block's decisions that were not counted yet."""
        known = self.next_seq[partition, one.copy_id, one.epoch]
        for place, decision in enumerate(decisions_of(one)):
            if one.first_seq + place >= known:
                self._count(partition, decision, one.copy_id)
        self.next_seq[partition, one.copy_id, one.epoch] = max(known, one.first_seq + one.count)

    def _count(self, partition: int, decision: Decision, copy_id: str) -> None:
        counts = counts_of(decision)
        if self._is_early(partition, decision):
            counts["early_returns"] = 1
        self.usage[partition, decision.minute, decision.caller, decision.scope].update(counts)
        fleet = (partition, decision.minute, decision.scope, decision.policy_version, decision.code)
        self.fleet[fleet].update(counts)
        caller = (partition, decision.minute, decision.caller)
        self.copies[caller].add(copy_id)
        self.k[caller] = max(self.k[caller], decision.k)

    def _is_early(self, partition: int, decision: Decision) -> bool:
        """Whether its caller had been told in this minute to come back later than this; notes what it is told now."""
        key, at_us = (partition, decision.minute, decision.caller, decision.scope), decision.at_us or 0
        told_at_us, until_us = self.told.get(key, (0, 0))
        if decision.retry_after_ms > 0:
            self.told[key] = (at_us, at_us + decision.retry_after_ms * 1000)
        return told_at_us < at_us < until_us


_REASON_COLUMNS = USAGE_COUNTS[1:7]


def counts_of(decision: Decision) -> dict[str, int]:
    """What one decision adds to each count column."""
    reason, source = decision.code & 15, decision.code >> 4
    counts = {"offered": 1, "cost_offered": decision.cost}
    if reason < len(_REASON_COLUMNS):
        counts[_REASON_COLUMNS[reason]] = 1
    if source == 2:
        counts["degraded"] = 1
    if reason == 0:
        counts["cost_admitted"] = decision.cost
    return counts
