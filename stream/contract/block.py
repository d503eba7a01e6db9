"""What a block of decisions holds once it is decoded: the shape that both readers of the log work on.

A block is columns, not rows. Each decision points into `bases`, the block's own dictionary of
(caller, scope, limit, plan, policy version, grant, k). `stream.contract.codec` has the bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Int64s: TypeAlias = npt.NDArray[np.int64]
UInt64s: TypeAlias = npt.NDArray[np.uint64]
UInt32s: TypeAlias = npt.NDArray[np.uint32]
Int32s: TypeAlias = npt.NDArray[np.int32]
UInt8s: TypeAlias = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """A plan as it was when the block's decisions were made; `per` names the calendar of a quota, else it is empty."""

    name: str
    rate_per_s: float
    burst: int
    per: str = ""


@dataclass(frozen=True, slots=True)
class OtherCharge:
    """A further grant that paid for the admitted decisions of a basis; `subject` is whose bucket it was."""

    basis: int
    subject: str
    limit: str
    grant_id: int


@dataclass(frozen=True, slots=True)
class Bases:
    """The dictionary of a block, as columns of equal length; index columns point into the lists beside them."""

    callers: list[str]
    scopes: list[str]
    limits: list[str]
    plans: list[BlockPlan]
    caller: UInt32s
    scope: UInt32s
    limit: UInt32s
    plan: UInt32s
    policy_version: UInt32s
    grant_id: UInt64s
    k: UInt32s
    also: list[OtherCharge] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Totals:
    """Decisions that were admitted, that were refused, and the tokens of the admitted ones."""

    admitted: int = 0
    refused: int = 0
    cost: int = 0

    def __add__(self, other: Totals) -> Totals:
        """Both together."""
        return Totals(self.admitted + other.admitted, self.refused + other.refused, self.cost + other.cost)


@dataclass(frozen=True, slots=True)
class DecisionBlock:
    """One sealed block: decisions `first_seq … first_seq + count - 1` of one copy's epoch.

    A block may be empty (count 0): a heartbeat that says how far the copy's record is complete.
    `sealed_at_us` and `at_us` are the copy's wall time in unix microseconds; `retry_after_ms` is -1 for never.
    `prev_hash` is the `block_hash` of the epoch's block before it, 16 zero bytes for its first.
    `clock_offset_ns` is the copy's wall time minus its monotonic clock. `owner_offset_us` is the owner's clock minus
    the copy's wall clock, None while the copy did not know. The totals are the copy's own, over all decisions of the
    epoch up to the end of this block, lost ones included; None in a block of version 1 or 2.
    """

    copy_id: str
    epoch: int
    first_seq: int
    count: int
    sealed_at_us: int
    prev_hash: bytes
    block_hash: bytes
    bases: Bases
    basis: UInt32s
    at_us: Int64s
    code: UInt8s
    cost: UInt32s
    remaining: Int64s
    retry_after_ms: Int32s
    version: int = 1
    clock_offset_ns: int = 0
    owner_offset_us: int | None = None
    admitted_total: int | None = None
    refused_total: int | None = None
    cost_total: int | None = None
