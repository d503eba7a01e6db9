"""The calendar of a quota at its owner: which period it is, what is left of its amount, and how long to refuse.

A quota has no rate here: a period begins with the whole amount, and what is lent is debited at once, so that no more
than the amount is ever lent in it. Mirrors passages of `owners/lua/grant.lua`. Never reads a clock.
"""

from __future__ import annotations

import math

from enforcer.core.dials import Dials
from enforcer.core.sizing import MICRO
from enforcer.core.state import Bucket
from enforcer.messages import Ask, AskFault


class OutsideCalendar(Exception):
    """The owner's present lies outside the turns that an ask names: the ask took no effect."""

    def __init__(self, fault: AskFault) -> None:
        super().__init__(fault)
        self.fault = fault

    def __str__(self) -> str:
        return self.fault.cause


def outside_calendar(ask: Ask, owner_now_us: int) -> AskFault:
    """What the copy is told then; it takes the owner's time from it, and asks again with other turns."""
    span = f"{ask.turns[0]} to {ask.turns[-1]}"
    cause = f"the copy's clock puts the quota's calendar at {span} µs, the owner's clock says {owner_now_us} µs"
    return AskFault(cause, owner_now_us)


def turn(work: Bucket, ask: Ask, now_us: int) -> int:
    """Begin the period that it is, unless it has begun; and go by the amount that the ask names.

    A period never goes back, or a clock that is put back would sell it twice.

    Returns:
        When the period ends, unix microseconds; later than `now_us`. Where a clock that was put back had been so far
        ahead that no turn reaches there, the next turn, from which on one may: nothing is lent before.

    Raises:
        OutsideCalendar: no turn before, or none after, `now_us`.
    """
    begun = [start for start in ask.turns if start <= now_us]
    if not begun or len(begun) == len(ask.turns):
        raise OutsideCalendar(outside_calendar(ask, now_us))
    amount = ask.plan.burst
    if begun[-1] > work.period_start_us:
        work.period_start_us = begun[-1]
        work.tokens_micro = amount * MICRO
    else:
        # What was used stays used when the amount is changed.
        work.tokens_micro += (amount - work.capacity) * MICRO
    work.capacity = amount
    since_us = max(now_us, work.period_start_us)
    return next((start for start in ask.turns if start > since_us), ask.turns[len(begun)])


def next_grant_id(work: Bucket, now_us: int) -> int:
    """The id of the next grant: it says of which period it is, also where the clock was put back after the turn."""
    return max(now_us, work.last_grant_id + 1, work.period_start_us)


def may_lend(work: Bucket, now_us: int, end_us: int) -> bool:
    """Whether the next grant's id lies in the period; ids that run ahead of the clock may pass its end."""
    return next_grant_id(work, now_us) < end_us


def refused_for_ms(work: Bucket, *, elsewhere: int, now_us: int, end_us: int, jitter: float, dials: Dials) -> int:
    """How long a copy refuses by itself once its grant is spent.

    Args:
        work: the state, after the grant.
        elsewhere: unspent stock in the hands of other copies: it may come back before the period ends.
        now_us: the owner's time.
        end_us: when the period ends.
        jitter: uniform in [0, 1).
        dials: of the owner.
    """
    lends = may_lend(work, now_us, end_us)
    if lends and work.tokens_micro >= MICRO:
        return 0
    wait_us = float(end_us - now_us)
    if lends and elsewhere > 0:
        wait_us = max(1_000.0, min(wait_us, dials.pause_max_us * (0.5 + jitter)))
    return math.ceil(wait_us / 1_000.0)
