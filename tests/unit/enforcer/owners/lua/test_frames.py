"""The frames around the script: what is packed is what its head says, and a foreign reply is refused."""

from __future__ import annotations

import struct

import msgspec
import pytest

from enforcer.core.dials import DEFAULT_DIALS
from enforcer.owners.lua import grant_script
from enforcer.owners.lua.frames import pack_ask, pack_terms, unpack_answer
from enforcer.types import Ask, Credit, Grant, Plan, SettleCause, Settlement

PLAN = Plan("p", 0.9, 10)


def test_terms_hold_the_plan_and_every_dial_in_order() -> None:
    """A dial added on one side only would shift all that follow it."""
    terms = pack_terms(PLAN, DEFAULT_DIALS)
    numbers = (PLAN.rate_per_s, PLAN.burst, *msgspec.structs.astuple(DEFAULT_DIALS))
    assert struct.unpack(f"<{len(numbers)}d", terms) == numbers
    assert f"unpack('<{'d' * len(numbers)}', ARGV[1])" in grant_script()


def test_ask_is_packed_with_its_settlements() -> None:
    """Doubles as they are, totals as counts."""
    stated = Settlement(1_780_000_000_000_001, 7, True, SettleCause.IDLE)
    packed = pack_ask(Ask("c", "l", PLAN, "m/1", 3, (stated,), 1, 2, 0.1, 5, 0.25))
    assert struct.unpack("<7d", packed[:56]) == (3, 1, 2, 0.1, 5, 0.25, 1)
    assert struct.unpack("<dIB", packed[56:]) == (1_780_000_000_000_001, 7, 1)


def test_answer_is_read_with_its_credits() -> None:
    """As the script packs it."""
    reply = struct.pack("<10d", 5, 10, 2, 100, 200, -0.5, 12, 100, 3, 1) + struct.pack("<dIIB", 4, 9, 3, 6) + b"gw-1/1"
    answer = unpack_answer(reply)
    assert answer.grant == Grant(5, 10, 2, 100, 200)
    assert (answer.k, answer.tokens, answer.refused_for_ms, answer.owner_now_us) == (2, -0.5, 12, 100)
    assert answer.clock_back == 3
    assert answer.credited == (Credit(4, "gw-1/1", 9, 3),)
    assert unpack_answer(struct.pack("<10d", 0, 0, 2, 0, 0, 1.0, 0, 100, 0, 0)).grant is None


@pytest.mark.parametrize("reply", [b"", b"OK", b"x" * 79, struct.pack("<10d", 0, 0, 0, 0, 0, 0, 0, 0, 0, 3)])
def test_foreign_reply_is_refused(reply: bytes) -> None:
    """Half an answer must not become a grant."""
    with pytest.raises(ValueError, match="reply"):
        unpack_answer(reply)
