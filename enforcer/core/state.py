"""What an owner holds for one bucket: the shapes, and what only copies them or steps their clock.

The same fields, in the same order, are what `grant.lua` keeps in one hash. Never reads a clock.
"""

from __future__ import annotations

import msgspec

from enforcer.core.dials import Dials


class OpenGrant(msgspec.Struct, frozen=True, gc=False):
    """A grant whose last total has not been stated; `stock` is the part that no request waited for."""

    grant_id: int
    expires_at_us: int
    size: int
    stock: int
    spent: int


class Tombstone(msgspec.Struct, frozen=True, gc=False):
    """A grant that was given back unsettled; a late settlement above `spent` is debited."""

    grant_id: int
    until_us: int
    size: int
    spent: int


class Member(msgspec.Struct, frozen=True):
    """One copy in one life, as the owner knows it. `seen_us`: when it last asked for tokens."""

    ask_no: int
    seen_us: int
    open: tuple[OpenGrant, ...]
    tombstones: tuple[Tombstone, ...]


class Bucket(msgspec.Struct):
    """All that the owner holds for one (caller, limit). Times are the owner's, unix microseconds.

    Attributes:
        tokens_micro: millionths of tokens left; negative while an overdraft is paid back.
        clock_us: up to when it is refilled.
        clock_back: how often the owner's clock was seen behind that.
        stock_out: unspent stock in the hands of copies, as far as the owner knows.
        lent: the part of it that was lent lately, decaying.
        offered_per_s: average of the load offered.
        window, k_now, k_before: number of the current counting window; copies seen in it and in the one before.
        next_scan_us: no grant expires, and no member goes idle, before.
        last_grant_id: ids rise.
        forget_at_us: from then on the bucket would be full and nothing is open.
        period_start_us, capacity: when the period of a calendar quota began, and its amount; 0 where there is none.
        members: by ``copy_id/epoch``.
    """

    tokens_micro: float
    clock_us: int
    clock_back: int
    stock_out: int
    lent: float
    offered_per_s: float
    window: int
    k_now: int
    k_before: int
    next_scan_us: int
    last_grant_id: int
    forget_at_us: int
    period_start_us: int
    capacity: int
    members: dict[str, Member]


def full_bucket(burst_micro: float, now_us: int, dials: Dials) -> Bucket:
    """The bucket of a caller not seen before, or forgotten."""
    return Bucket(
        tokens_micro=burst_micro,
        clock_us=now_us,
        clock_back=0,
        stock_out=0,
        lent=0.0,
        offered_per_s=0.0,
        window=now_us // dials.k_window_us,
        k_now=0,
        k_before=0,
        next_scan_us=now_us + dials.keep_us,
        last_grant_id=0,
        forget_at_us=0,
        period_start_us=0,
        capacity=0,
        members={},
    )


def copied(bucket: Bucket) -> Bucket:
    """A bucket to work on; its members are immutable and shared."""
    work = msgspec.structs.replace(bucket)
    work.members = dict(bucket.members)
    return work


def unspent_stock(grant: OpenGrant) -> int:
    """What of the stock may still be unspent: the waiting took theirs at once."""
    return max(0, min(grant.stock, grant.size - grant.spent))


def step_clock(work: Bucket, now_us: int, dials: Dials) -> int:
    """The time that counts: never behind the stored one, unless the clock was set back for good."""
    if now_us >= work.clock_us:
        return now_us
    work.clock_back += 1
    if work.clock_us - now_us <= dials.clock_back_us:
        return work.clock_us
    work.clock_us = now_us
    work.next_scan_us = min(work.next_scan_us, now_us + dials.expiry_us)
    return now_us
