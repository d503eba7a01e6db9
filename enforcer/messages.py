"""What a copy and an owner say to each other: asks, answers, settlements. Plain values; nobody is asked here."""

from __future__ import annotations

from enum import IntEnum

import msgspec

from enforcer.types import Grant, Plan


class SettleCause(IntEnum):
    """What made a copy (or the owner) state a grant's total. Append only."""

    ASK = 0
    IDLE = 1
    CLOSE = 2
    EXPIRY = 3
    """The copy stopped spending the grant because its expiry had passed."""
    CREDITED = 4
    """The owner gave an unsettled grant back after expiry and grace; `spent` is what it knew of."""


class Settlement(msgspec.Struct, frozen=True):
    """The total spent of one grant. A total, never an increment: stating it twice changes nothing.

    `size` and `expires_at_us` stand with the total of a grant that is still held, for an owner that has lost its state.
    `adjusted` is the part of the total that no decision names: what was charged after the fact, less what was refunded.
    """

    grant_id: int
    spent: int
    final: bool
    cause: SettleCause
    size: int = 0
    expires_at_us: int = 0
    adjusted: int = 0


class Ask(msgspec.Struct, frozen=True):
    """One question of a copy to the owner of a caller's bucket: settle these, and grant me more.

    Attributes:
        caller, limit, plan: which bucket, and what it was sold.
        member: the copy in this life, as ``copy_id/epoch``: what k counts.
        ask_no: rises with every ask of this member for this bucket; an older one that arrives late settles
            but takes nothing.
        settlements: totals of all grants that this copy has not seen acknowledged as final.
        waiting: tokens that requests wait for now.
        want: further tokens to hold in stock.
        rate_per_s: this copy's own smoothed spending.
        offered: tokens asked of this copy, admitted or not, since its last ask that was answered.
        jitter: uniform in [0, 1), spreads the retry times of many copies.
        turns: when a calendar quota starts anew, unix microseconds, rising, some before now and some after; empty for a
            token bucket.
    """

    caller: str
    limit: str
    plan: Plan
    member: str
    ask_no: int
    settlements: tuple[Settlement, ...]
    waiting: int
    want: int
    rate_per_s: float
    offered: int
    jitter: float
    turns: tuple[int, ...] = ()


class Credit(msgspec.Struct, frozen=True):
    """A grant of some copy that the owner gave back because it expired unsettled."""

    grant_id: int
    member: str
    size: int
    spent: int


class AskFault(msgspec.Struct, frozen=True):
    """The owner is there, but cannot answer for this one bucket: what is kept under its key is not a bucket.

    `cause` is for people; it holds no credential. `owner_now_us` is the owner's clock where it is told, else 0.
    """

    cause: str
    owner_now_us: int = 0


class Moved(AskFault, frozen=True):
    """The bucket is at another node now, or is on its way there: the ask took no effect; refresh and place it again.

    Attributes:
        host, port: of that node; the port is 0 where it was not told, the host empty where it is that of the one asked.
        arriving: only this bucket is there yet, not all of its slot: the node is told so, and the placing stays.
    """

    host: str = ""
    port: int = 0
    arriving: bool = False


class Answer(msgspec.Struct, frozen=True):
    """What the owner says to an `Ask`.

    Attributes:
        grant: tokens to spend: for the waiting first, the rest is stock; None if there were none.
        k: distinct copies seen asking for this bucket lately.
        tokens: what is left in the bucket; negative while the overdraft is paid back.
        refused_for_ms: how long from now the copy refuses by itself once the grant is spent; 0 if it may ask.
        owner_now_us: the owner's clock, unix microseconds.
        credited: grants of any copy that were given back on this occasion.
        adopted: grants of this copy that the owner did not know, and has taken in: it had lost its state.
        clock_back: how often this bucket's owner has seen its clock behind the time that it had stored.
        moved: whether the bucket was found at another node than the one that was asked: refresh and place it again.
    """

    grant: Grant | None
    k: int
    tokens: float
    refused_for_ms: int
    owner_now_us: int
    credited: tuple[Credit, ...]
    adopted: int = 0
    clock_back: int = 0
    moved: bool = False
