"""Which messages of the decisions topic count, and when: one rule for both readers, so that they can never disagree.

A block says its copy's own wall time. What is counted is the owner's time, where the copy knew it; else the copy's,
unless the broker's own clock shows that it is ahead. The rule looks at nothing but the message as the log holds it, so
a replay gives the same times. Reads no clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from enforcer.types import Reason, Source
from stream.contract.block import BlockPlan, DecisionBlock
from stream.contract.codec import CorruptBlock, decode_block

#: What the tables can hold: 1970-01-01 up to 2100-01-01, unix microseconds.
END_OF_TIME_US = 4_102_444_800_000_000
#: The decisions of a block are made within seconds. One that spans more was not written by a copy.
MAX_SPAN_US = 3_600_000_000
#: How far ahead of the broker's clock a block may be sealed by a copy that does not know the owner's.
MAX_AHEAD_US = 300_000_000
#: Largest rate of a plan, tokens per second: what a policy may say. Pages could not show an arbitrary one.
MAX_RATE_PER_S = 1e9
#: Smallest rate of a token bucket, likewise: when a slower one is full again is no time that can be reckoned with.
MIN_RATE_PER_S = 1e-9
#: Largest burst of a plan, or amount of a quota, tokens: what the tables can hold. A policy may say no more.
MAX_BURST = 2**32 - 1
#: Names and charges of a block, written out at every decision that they belong to: more than any copy's, less than what
#: the memory of a reader or of the database holds.
MAX_SPREAD_BYTES = 256 * 1024 * 1024
_CHARGE_BYTES = 24
_SHOWN = 80
_HASH_BYTES = 16
_MAX_SOURCE = max(Source)
_MAX_REASON = max(Reason)


@dataclass(frozen=True, slots=True)
class Accepted:
    """A block with the times that count.

    Attributes:
        block: its `at_us` and `sealed_at_us` are corrected.
        shift_us: what was added to the copy's own times, microseconds; taking it off gives them back.
    """

    block: DecisionBlock
    shift_us: int


def accept_block(data: bytes, *, appended_us: int | None) -> Accepted:
    """The block that a message holds, at the times that count.

    Args:
        data: the message's value.
        appended_us: when the broker appended it by its own clock, unix microseconds; None if the broker does not say
            (a timestamp that the producer made is no second opinion about the producer's clock).

    Raises:
        CorruptBlock: it is none, or one that nobody can count; says why.
    """
    block = decode_block(data)
    shift_us = shift_of(block.sealed_at_us, block.owner_offset_us, appended_us)
    reason = why_unacceptable(block, shift_us)
    # No decision has more names than the whole message: nearly always that settles it.
    if reason is None and block.count * len(data) > MAX_SPREAD_BYTES:
        reason = why_too_long(block)
    if reason is not None:
        raise CorruptBlock(reason)
    return Accepted(shifted(block, shift_us), shift_us)


def shift_of(sealed_at_us: int, owner_offset_us: int | None, appended_us: int | None) -> int:
    """What is to be added to the times of a block or control event, microseconds. What is older than the log is late.

    Args:
        sealed_at_us: the copy's own time of its seal, or of the event.
        owner_offset_us: the owner's clock minus the copy's, as the copy knew it.
        appended_us: see `accept_block`.
    """
    if owner_offset_us is not None:
        return owner_offset_us
    if appended_us is not None and sealed_at_us > appended_us + MAX_AHEAD_US:
        return appended_us - sealed_at_us
    return 0


def shifted(block: DecisionBlock, shift_us: int) -> DecisionBlock:
    """The block with all its times moved."""
    if shift_us == 0:
        return block
    return replace(block, sealed_at_us=block.sealed_at_us + shift_us, at_us=block.at_us + shift_us)


def why_unacceptable(block: DecisionBlock, shift_us: int = 0) -> str | None:
    """What in a well-formed block nobody can count, as a sentence; None if nothing.

    The tables would refuse it for ever, and stop the record of everybody; or it would be spread over so many minutes
    that everybody waits for it.
    """
    sealed_at_us = block.sealed_at_us + shift_us
    if not 0 <= sealed_at_us < END_OF_TIME_US:
        return f"sealed_at_us is {sealed_at_us}; allowed: a time from 1970 to 2099"
    if len(block.prev_hash) != _HASH_BYTES or len(block.block_hash) != _HASH_BYTES:
        return f"a hash is {len(block.prev_hash)} or {len(block.block_hash)} bytes long; allowed: {_HASH_BYTES}"
    for plan in block.bases.plans:
        reason = _why_plan_unacceptable(plan)
        if reason is not None:
            return reason
    return _why_decisions_unacceptable(block, shift_us) if block.count else None


def why_too_long(block: DecisionBlock) -> str | None:
    """Whether a block's names and charges, written out at each decision, are too long; as a sentence, None if not.

    They stand in a block once, however many decisions point to them.
    """
    bases = block.bases
    callers = np.array([len(name.encode()) for name in bases.callers], np.int64)
    scopes = np.array([len(name.encode()) for name in bases.scopes], np.int64)
    sizes = callers[bases.caller] + scopes[bases.scope]
    for other in bases.also:
        sizes[other.basis] += len(other.subject.encode()) + len(other.limit.encode()) + _CHARGE_BYTES
    spread = int(sizes[block.basis].sum())
    if spread <= MAX_SPREAD_BYTES:
        return None
    return f"names and charges of all decisions are {spread} bytes; allowed: up to {MAX_SPREAD_BYTES}"


def _why_plan_unacceptable(plan: BlockPlan) -> str | None:
    if not plan.rate_per_s <= MAX_RATE_PER_S:
        return f"rate_per_s of plan {plan.name[:_SHOWN]!r} is {plan.rate_per_s}; allowed: up to {MAX_RATE_PER_S:,.0f}"
    if not plan.per and not plan.rate_per_s >= MIN_RATE_PER_S:
        return f"rate_per_s of plan {plan.name[:_SHOWN]!r} is {plan.rate_per_s}; allowed: from {MIN_RATE_PER_S:g}"
    if not 0 <= plan.burst <= MAX_BURST:
        return f"burst of plan {plan.name[:_SHOWN]!r} is {plan.burst}; allowed: 0 to {MAX_BURST}"
    return None


def _why_decisions_unacceptable(block: DecisionBlock, shift_us: int) -> str | None:
    # As whole numbers of any size: a forged time must not wrap around.
    low, high = int(block.at_us.min()) + shift_us, int(block.at_us.max()) + shift_us
    if low < 0 or high >= END_OF_TIME_US:
        return f"at_us goes from {low} to {high}; allowed: times from 1970 to 2099"
    if high - low > MAX_SPAN_US:
        return f"at_us goes from {low} to {high}; allowed: {MAX_SPAN_US // 60_000_000} minutes between first and last"
    if int((block.code >> 4).max()) > _MAX_SOURCE or int((block.code & 15).max()) > _MAX_REASON:
        return f"code is up to {int(block.code.max())}; allowed: source 0 to {_MAX_SOURCE}, reason 0 to {_MAX_REASON}"
    return None
