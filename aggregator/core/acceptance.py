"""Which messages of the decisions topic count: one rule for both readers, so that they can never disagree about it.

Reads no clock, and never changes a block.
"""

from __future__ import annotations

from enforcer.types import Reason, Source
from stream.contract.block import DecisionBlock
from stream.contract.codec import CorruptBlock, decode_block

#: What the tables can hold: 1970-01-01 up to 2100-01-01, unix microseconds.
END_OF_TIME_US = 4_102_444_800_000_000
#: The decisions of a block are made within seconds. One that spans more was not written by a copy.
MAX_SPAN_US = 3_600_000_000
#: Largest rate of a plan, tokens per second: what a policy may say. Pages could not show an arbitrary one.
MAX_RATE_PER_S = 1e9
_HASH_BYTES = 16
_MAX_SOURCE = max(Source)
_MAX_REASON = max(Reason)


def accept_block(data: bytes) -> DecisionBlock:
    """The block that a message holds.

    Raises:
        CorruptBlock: it is none, or one that nobody can count; says why.
    """
    block = decode_block(data)
    reason = why_unacceptable(block)
    if reason is not None:
        raise CorruptBlock(reason)
    return block


def why_unacceptable(block: DecisionBlock) -> str | None:
    """What in a well-formed block nobody can count, as a sentence; None if nothing.

    The tables would refuse it for ever, and stop the record of everybody; or it would be spread over so many minutes
    that everybody waits for it.
    """
    if not 0 <= block.sealed_at_us < END_OF_TIME_US:
        return f"sealed_at_us is {block.sealed_at_us}; allowed: a time from 1970 to 2099"
    if len(block.prev_hash) != _HASH_BYTES or len(block.block_hash) != _HASH_BYTES:
        return f"a hash is {len(block.prev_hash)} or {len(block.block_hash)} bytes long; allowed: {_HASH_BYTES}"
    for plan in block.bases.plans:
        if not plan.rate_per_s <= MAX_RATE_PER_S:
            return f"rate_per_s of plan {plan.name!r} is {plan.rate_per_s}; allowed: up to {MAX_RATE_PER_S:,.0f}"
    return _why_decisions_unacceptable(block) if block.count else None


def _why_decisions_unacceptable(block: DecisionBlock) -> str | None:
    low, high = int(block.at_us.min()), int(block.at_us.max())
    if low < 0 or high >= END_OF_TIME_US:
        return f"at_us goes from {low} to {high}; allowed: times from 1970 to 2099"
    if high - low > MAX_SPAN_US:
        return f"at_us goes from {low} to {high}; allowed: {MAX_SPAN_US // 60_000_000} minutes between first and last"
    if int((block.code >> 4).max()) > _MAX_SOURCE or int((block.code & 15).max()) > _MAX_REASON:
        return f"code is up to {int(block.code.max())}; allowed: source 0 to {_MAX_SOURCE}, reason 0 to {_MAX_REASON}"
    return None
