"""Arguments and replies of ``grant.lua``, packed: doubles and 32-bit counts, little endian, as the script's head says.

Packed, because a double then arrives as it was sent, and because the script reads them in one call. Never does I/O.
"""

from __future__ import annotations

import math
import struct
from functools import lru_cache

import msgspec

from enforcer.core.asks import MOST_COUNT, MOST_TOKENS
from enforcer.core.dials import Dials
from enforcer.core.quota import outside_calendar
from enforcer.messages import Answer, Ask, AskFault, Credit
from enforcer.types import Grant, Plan

_ASK = struct.Struct("<8d")
_SETTLEMENT = struct.Struct("<dIBId")
_REPLY = struct.Struct("<11d")
_OUTSIDE = struct.Struct("<d")
_CREDIT = struct.Struct("<dIIB")


@lru_cache(maxsize=1024)
def pack_terms(plan: Plan, dials: Dials) -> bytes:
    """ARGV[1]: rate and burst of the plan, then all dials in their order."""
    numbers = (plan.rate_per_s, plan.burst, *msgspec.structs.astuple(dials))
    return struct.pack(f"<{len(numbers)}d", *numbers)


def pack_ask(ask: Ask) -> bytes:
    """ARGV[3]: the numbers of the ask, then its settlements, then the turns of its calendar."""
    settlements, turns = ask.settlements, ask.turns
    numbers = (ask.ask_no, ask.waiting, ask.want, ask.rate_per_s, ask.offered, ask.jitter)
    head = _ASK.pack(*numbers, len(settlements), len(turns))
    if settlements:
        head += b"".join(_SETTLEMENT.pack(s.grant_id, s.spent, s.final, s.size, s.expires_at_us) for s in settlements)
    return head + struct.pack(f"<{len(turns)}d", *turns) if turns else head


def unpack_outcome(reply: bytes, ask: Ask) -> Answer | AskFault:
    """Read the script's reply to `ask`.

    Raises:
        ValueError: it has another form, or numbers that no bucket can give: its bucket is spoiled.
    """
    if ask.turns and len(reply) == _OUTSIDE.size:
        (now,) = _OUTSIDE.unpack(reply)
        if not 0 <= now <= MOST_COUNT:
            raise ValueError(f"reply has a time that is none: {now}")
        return outside_calendar(ask, int(now))
    return unpack_answer(reply)


def unpack_answer(reply: bytes) -> Answer:
    """Read an answer.

    Raises:
        ValueError: it has another form, or numbers that no bucket can give: its bucket is spoiled.
    """
    if len(reply) < _REPLY.size:
        raise ValueError(f"reply is {len(reply)} bytes; the script sends at least {_REPLY.size}")
    grant_id, size, k, issued, expires, tokens, refused_ms, now, back, adopted, count = _REPLY.unpack_from(reply)
    counts = (grant_id, k, issued, expires, now, back, adopted, count)
    if not (all(0 <= number <= MOST_COUNT for number in counts) and 0 <= size <= MOST_TOKENS and k <= MOST_TOKENS):
        raise ValueError(f"reply has a count that is none: {[*counts, size]}")
    if not (math.isfinite(tokens) and 0 <= refused_ms < math.inf):
        raise ValueError(f"reply says {tokens} tokens, refused for {refused_ms} ms")
    grant = Grant(int(grant_id), int(size), int(k), int(issued), int(expires)) if grant_id else None
    credited = _unpack_credits(reply, int(count)) if count else ()
    return Answer(grant, int(k), tokens, int(refused_ms), int(now), credited, int(adopted), int(back))


def _unpack_credits(reply: bytes, count: int) -> tuple[Credit, ...]:
    credited: list[Credit] = []
    at = _REPLY.size
    for _ in range(count):
        try:
            grant_id, size, spent, length = _CREDIT.unpack_from(reply, at)
        except struct.error:
            raise ValueError(f"reply names {count} credits and holds {len(credited)}") from None
        at += _CREDIT.size + length
        credited.append(Credit(int(grant_id), reply[at - length : at].decode("utf-8", "replace"), size, spent))
    return tuple(credited)
