"""Which blocks count: the one rule of both readers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aggregator.core.acceptance import why_unacceptable
from stream.contract.block import BlockPlan
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
