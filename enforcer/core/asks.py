"""What an owner accepts as an ask; both owners check it before they touch a bucket. Never reads state."""

from __future__ import annotations

import math

from enforcer.errors import InvalidField
from enforcer.messages import Ask
from enforcer.types import Plan

#: Largest count of tokens in one field: they are stored as 32 bits.
MOST_TOKENS = (1 << 32) - 1
#: Largest number that a double counts to in ones.
MOST_COUNT = (1 << 53) - 1
#: Most grants that one ask may settle.
MOST_SETTLEMENTS = 64
#: Most turns of a calendar that one ask may name; two, one before now and one after it, are the least.
MOST_TURNS = 16
#: Longest name of a copy in one life.
LONGEST_MEMBER = 128


def check_plan(plan: Plan) -> None:
    """Refuse a plan that no bucket can hold.

    Raises:
        InvalidField: rate not a finite number above 0, or burst not in 1 to 4,294,967,295.
    """
    if not (math.isfinite(plan.rate_per_s) and plan.rate_per_s > 0.0):
        raise InvalidField("plan.rate_per_s", plan.rate_per_s, "a finite number above 0")
    _count("plan.burst", plan.burst, 1, MOST_TOKENS)


def check_ask(ask: Ask) -> None:
    """Refuse an ask that the rules were not made for.

    Raises:
        InvalidField: the first field that is wrong, its value and what is allowed.
    """
    check_plan(ask.plan)
    if not (0 < len(ask.member) <= LONGEST_MEMBER and "/" in ask.member and ask.member.isascii()):
        raise InvalidField("member", ask.member, f"copy_id/epoch, at most {LONGEST_MEMBER} ASCII characters")
    _count("ask_no", ask.ask_no, 1, MOST_COUNT)
    _count("waiting", ask.waiting, 0, MOST_TOKENS)
    _count("want", ask.want, 0, MOST_TOKENS)
    _count("offered", ask.offered, 0, MOST_COUNT)
    if not (math.isfinite(ask.rate_per_s) and ask.rate_per_s >= 0.0):
        raise InvalidField("rate_per_s", ask.rate_per_s, "a finite number, 0 or more")
    if not 0.0 <= ask.jitter < 1.0:
        raise InvalidField("jitter", ask.jitter, "a number in [0, 1)")
    if len(ask.settlements) > MOST_SETTLEMENTS:
        raise InvalidField("settlements", len(ask.settlements), f"at most {MOST_SETTLEMENTS} in one ask")
    for settlement in ask.settlements:
        _count("settlement.grant_id", settlement.grant_id, 1, MOST_COUNT)
        _count("settlement.spent", settlement.spent, 0, MOST_TOKENS)
        _count("settlement.size", settlement.size, 0, MOST_TOKENS)
        _count("settlement.expires_at_us", settlement.expires_at_us, 0, MOST_COUNT)
    if ask.turns:
        _check_turns(ask.turns)


def _check_turns(turns: tuple[int, ...]) -> None:
    _count("turns", len(turns), 2, MOST_TURNS)
    before = 0
    for turn in turns:
        if not before < turn <= MOST_COUNT:
            raise InvalidField("turns", turns, f"unix microseconds, rising, from 1 to {MOST_COUNT}")
        before = turn


def _count(field: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InvalidField(field, value, f"a whole number from {least} to {most}")
