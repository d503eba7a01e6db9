"""The frames around the script: what is packed is what its head says, and a foreign reply is refused."""

from __future__ import annotations

import struct

import msgspec
import pytest

from enforcer.core.dials import DEFAULT_DIALS
from enforcer.messages import Ask, AskFault, Credit, SettleCause, Settlement
from enforcer.owners.lua import grant_script
from enforcer.owners.lua.frames import pack_ask, pack_terms, unpack_answer, unpack_outcome
from enforcer.types import Grant, Plan

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
    assert struct.unpack("<8d", packed[:64]) == (3, 1, 2, 0.1, 5, 0.25, 1, 0)
    assert struct.unpack("<dIBId", packed[64:]) == (1_780_000_000_000_001, 7, 1, 0, 0)


def test_ask_about_a_quota_ends_with_its_calendar() -> None:
    """And a held grant is stated with all that it takes to take it in again."""
    held = Settlement(1_780_000_000_000_001, 7, False, SettleCause.ASK, 9, 1_780_000_000_005_001)
    packed = pack_ask(Ask("c", "l", PLAN, "m/1", 3, (held,), 1, 2, 0.1, 5, 0.25, (100, 200, 300)))
    assert struct.unpack("<8d", packed[:64])[6:] == (1, 3)
    assert struct.unpack("<dIBId", packed[64:89]) == (1_780_000_000_000_001, 7, 0, 9, 1_780_000_000_005_001)
    assert struct.unpack("<3d", packed[89:]) == (100, 200, 300)


def test_time_outside_the_calendar_is_a_fault_that_names_both_clocks() -> None:
    """The copy goes by the owner's time from then on; whoever reads the log sees which clock is off."""
    asked = Ask("c", "l", PLAN, "m/1", 3, (), 1, 2, 0.1, 5, 0.25, (100, 200, 300))
    fault = unpack_outcome(struct.pack("<d", 412), asked)
    assert fault == AskFault(fault.cause if isinstance(fault, AskFault) else "", 412)
    assert all(number in str(fault) for number in ("100", "300", "412"))
    with pytest.raises(ValueError, match="time"):
        unpack_outcome(struct.pack("<d", float("nan")), asked)
    with pytest.raises(ValueError, match="bytes"):
        unpack_outcome(struct.pack("<d", 412), Ask("c", "l", PLAN, "m/1", 3, (), 1, 2, 0.1, 5, 0.25))


def test_answer_is_read_with_its_credits() -> None:
    """As the script packs it."""
    reply = (
        struct.pack("<11d", 5, 10, 2, 100, 200, -0.5, 12, 100, 3, 6, 1) + struct.pack("<dIIB", 4, 9, 3, 6) + b"gw-1/1"
    )
    answer = unpack_answer(reply)
    assert answer.grant == Grant(5, 10, 2, 100, 200)
    assert (answer.k, answer.tokens, answer.refused_for_ms, answer.owner_now_us) == (2, -0.5, 12, 100)
    assert (answer.clock_back, answer.adopted) == (3, 6)
    assert answer.credited == (Credit(4, "gw-1/1", 9, 3),)
    assert unpack_answer(struct.pack("<11d", 0, 0, 2, 0, 0, 1.0, 0, 100, 0, 0, 0)).grant is None


@pytest.mark.parametrize("reply", [b"", b"OK", b"x" * 87, struct.pack("<11d", *[0] * 10, 3)])
def test_foreign_reply_is_refused(reply: bytes) -> None:
    """Half an answer must not become a grant."""
    with pytest.raises(ValueError, match="reply"):
        unpack_answer(reply)
