"""Which blocks count: the one rule of both readers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from aggregator.core.record.acceptance import accept_block, shift_of, shifted, why_unacceptable
from enforcer.types import Basis, Charge, Plan, Standing, Terms, Verdict
from stream.contract.block import BlockPlan
from stream.contract.codec import CorruptBlock, encode_block
from tests.recordblocks import MIDNIGHT_US, Made, make_block


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (Made(at_us=-1), "at_us"),
        (Made(at_us=4_102_444_800_000_000), "at_us"),
        (Made(at_us=MIDNIGHT_US + 3_600_000_002), "60 minutes"),
        (Made(code=0x40), "code"),
        (Made(code=0x06), "code"),
    ],
)
def test_why_unacceptable_names_what_the_tables_cannot_hold(made: Made, said: str) -> None:
    """Such a row would be refused for ever, and stop the record of everybody behind it."""
    assert said in (why_unacceptable(make_block([Made(), made])) or "")


def test_why_unacceptable_names_a_seal_outside_time_and_a_short_hash() -> None:
    """The same for what stands once in a block."""
    assert "sealed_at_us" in (why_unacceptable(make_block([], sealed_at_us=-5)) or "")
    assert "hash" in (why_unacceptable(replace(make_block([]), prev_hash=b"short")) or "")


def test_why_unacceptable_lets_a_block_pass_that_is_eight_days_old_or_early() -> None:
    """Spooled decisions come late, and are counted where they belong."""
    for days in (-8, 400):
        made = Made(at_us=MIDNIGHT_US + days * 86_400_000_000)
        assert why_unacceptable(make_block([made, replace(made, at_us=made.at_us + 1_000_000)])) is None


def test_why_unacceptable_names_a_rate_that_no_policy_can_have() -> None:
    """A page that shows the plan would fail on it."""
    block = make_block([Made()])
    forged = replace(block, bases=replace(block.bases, plans=[BlockPlan("pro", 1e308, 200)]))
    assert "'pro' is 1e+308" in (why_unacceptable(forged) or "")


_DAY_US = 86_400_000_000
_MINUTE_US = 60_000_000


@pytest.mark.parametrize(
    ("sealed_us", "appended_us", "owner_offset_us", "shift_us"),
    [
        pytest.param(400 * _DAY_US, 0, None, -400 * _DAY_US, id="R18: ahead of the log, owner unknown"),
        pytest.param(400 * _DAY_US, 0, -399 * _DAY_US, -399 * _DAY_US, id="the owner's clock is the one that counts"),
        pytest.param(400 * _DAY_US, None, None, 0, id="nothing known: nobody guesses, so that replays agree"),
        pytest.param(0, 8 * _DAY_US, None, 0, id="R7: spooled for eight days, late and not wrong"),
        pytest.param(0, 8 * _DAY_US, 3, 3, id="spooled, with an owner"),
        pytest.param(5 * _MINUTE_US, 0, None, 0, id="five minutes ahead is let pass"),
        pytest.param(5 * _MINUTE_US + 1, 0, None, -5 * _MINUTE_US - 1, id="and not a microsecond more"),
    ],
)
def test_shift_of_says_what_makes_a_copys_time_the_one_that_counts(
    sealed_us: int, appended_us: int | None, owner_offset_us: int | None, shift_us: int
) -> None:
    """Both readers count by it: it must depend on the message alone."""
    appended = None if appended_us is None else MIDNIGHT_US + appended_us
    assert shift_us == shift_of(MIDNIGHT_US + sealed_us, owner_offset_us, appended)


def test_shifted_block_gives_its_copys_own_times_back() -> None:
    """The hash chain is over what the copy said."""
    block = make_block([Made(), Made(at_us=MIDNIGHT_US + 5)])
    moved = shifted(block, -_DAY_US)
    assert [MIDNIGHT_US + 1 - _DAY_US, MIDNIGHT_US + 5 - _DAY_US] == moved.at_us.tolist()
    back = shifted(moved, _DAY_US)
    assert (block.sealed_at_us, block.at_us.tolist()) == (back.sealed_at_us, back.at_us.tolist())


@pytest.mark.parametrize("shift_us", [-(2**62), 2**62, -MIDNIGHT_US - 1_000_001])
def test_why_unacceptable_looks_at_the_times_that_count(shift_us: int) -> None:
    """A forged offset must neither wrap around nor reach a table."""
    assert "sealed_at_us" in (why_unacceptable(make_block([Made()]), shift_us) or "")
    assert "at_us" in (why_unacceptable(make_block([Made()], sealed_at_us=MIDNIGHT_US - shift_us), shift_us) or "")


def test_accept_block_lets_a_copy_be_wrong_about_the_century() -> None:
    """R18: what cannot stand in a table as it was said can once it is corrected; without a second clock it is kept."""
    sealed_us = 5_000_000_000_000_000
    data = encode_block([], copy_id="c", epoch=1, first_seq=0, sealed_at_us=sealed_us, clock_offset_ns=0)
    accepted = accept_block(data, appended_us=MIDNIGHT_US)
    assert (MIDNIGHT_US, MIDNIGHT_US - sealed_us) == (accepted.block.sealed_at_us, accepted.shift_us)
    with pytest.raises(CorruptBlock, match="sealed_at_us"):
        accept_block(data, appended_us=None)


@pytest.mark.parametrize("burst", [-1, 2**32, 2**63 - 1])
def test_why_unacceptable_names_a_burst_that_no_table_can_hold(burst: int) -> None:
    """The layout has room for it; one such block stopped the record of everybody."""
    block = make_block([Made()])
    forged = replace(block, bases=replace(block.bases, plans=[BlockPlan("pro" * 1_000, 1.0, burst)]))
    said = why_unacceptable(forged) or ""
    assert f"is {burst}; allowed: 0 to 4294967295" in said
    assert len(said) < 200, "the name is the sender's, and as long as he likes"


@pytest.mark.parametrize("rate", [0.0, -0.0, -5.0, 9e-10, 1e-300, float("nan"), float("inf")])
def test_why_unacceptable_names_a_rate_at_which_no_bucket_is_ever_full_again(rate: float) -> None:
    """The fairness replay divides by it. A quota's is nominal, and is divided by nowhere."""
    block = make_block([Made()])

    def held_to(plan: BlockPlan) -> str | None:
        return why_unacceptable(replace(block, bases=replace(block.bases, plans=[plan])))

    assert f"'pro' is {rate}; allowed:" in (held_to(BlockPlan("pro", rate, 1)) or "")
    assert held_to(BlockPlan("pro", 1e-9, 1)) is None
    assert held_to(BlockPlan("pro", 0.0, 1, "day")) is None


def test_accept_block_refuses_names_that_every_decision_repeats() -> None:
    """They stand in the message once, and would be written out as often as there are decisions."""
    charges = tuple(Charge("s" * 1_000, "day", 1) for _ in range(60))
    standing = Standing("acct-1", Terms("rate", Plan("pro", 1.0, 1), 1))
    basis = Basis(standing, "/x", MIDNIGHT_US, 1, charges)
    where: dict[str, Any] = {"copy_id": "c", "epoch": 1, "first_seq": 0, "sealed_at_us": MIDNIGHT_US}
    verdicts = [Verdict(seq, 0, basis, True, 0, 1, 1, 0) for seq in range(5_000)]
    fits = encode_block(verdicts[:4_000], **where, clock_offset_ns=MIDNIGHT_US * 1_000)
    assert 4_000 == accept_block(fits, appended_us=None).block.count
    with pytest.raises(CorruptBlock, match="names and charges of all decisions are 308140000"):
        accept_block(encode_block(verdicts, **where, clock_offset_ns=MIDNIGHT_US * 1_000), appended_us=None)
