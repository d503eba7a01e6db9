"""Rules of the owner that need its state, seen directly; the contract suite holds what a copy can see."""

from __future__ import annotations

import pytest

from enforcer.core.bucket import MOST_OPEN, MOST_TOMBSTONES, answer
from enforcer.core.dials import DEFAULT_DIALS
from enforcer.core.sizing import MICRO
from enforcer.core.state import Bucket
from enforcer.messages import Answer, Ask, SettleCause, Settlement
from enforcer.types import Plan

NOW_US = 1_780_000_000_000_000
SECOND_US = 1_000_000
STANDARD = Plan("standard", 100.0, 200)
STILL = Plan("still", 1e-9, 200)
EXPIRED_US = DEFAULT_DIALS.expiry_us + DEFAULT_DIALS.grace_us


def ask(
    member: str = "gw-1/1",
    *,
    ask_no: int = 1,
    plan: Plan = STILL,
    waiting: int = 0,
    want: int = 0,
    settlements: tuple[Settlement, ...] = (),
    offered: int = 0,
    rate_per_s: float = 0.0,
) -> Ask:
    return Ask("caller", "rate", plan, member, ask_no, settlements, waiting, want, rate_per_s, offered, 0.5)


def run(bucket: Bucket | None, asked: Ask, now_us: int = NOW_US) -> tuple[Bucket, Answer]:
    return answer(bucket, asked, now_us, DEFAULT_DIALS)


def total(answered: Answer, spent: int, *, final: bool = True) -> Settlement:
    assert answered.grant is not None
    return Settlement(answered.grant.grant_id, spent, final, SettleCause.ASK)


def test_answer_leaves_the_given_state_alone() -> None:
    """Tests, the fake and the audit rewind and branch histories."""
    bucket, _ = run(None, ask(waiting=10, want=10))
    before = Bucket(**{name: getattr(bucket, name) for name in bucket.__struct_fields__})
    before.members = dict(bucket.members)
    run(bucket, ask("gw-2/1", waiting=50), NOW_US + EXPIRED_US + 1)
    assert bucket == before


def test_overdrawn_bucket_gives_nothing_and_stays_as_it_is() -> None:
    """Trap: after grants expire the overdraft shrinks below the debt; a negative gift would mint tokens."""
    bucket, held = run(None, ask("gw-1/1", want=50))
    assert held.grant is not None
    bucket, _ = run(bucket, ask("gw-2/1", waiting=200))
    assert bucket.tokens_micro < -40 * MICRO
    bucket, _ = run(bucket, ask("gw-1/1", ask_no=2, settlements=(total(held, 50),)))
    level = bucket.tokens_micro
    bucket, refused = run(bucket, ask("gw-3/1", waiting=5, want=5))
    assert refused.grant is None
    assert bucket.tokens_micro == pytest.approx(level)


def test_tokens_for_the_waiting_are_not_lent_to_them_as_well() -> None:
    """Trap: a grant used up by its waiters must not count as stock that may come back."""
    bucket, given = run(None, ask(waiting=30))
    assert given.grant is not None
    assert given.grant.size == 30
    assert bucket.stock_out == 0
    assert bucket.lent == 0
    bucket, given = run(bucket, ask("gw-2/1", waiting=30, want=10))
    assert given.grant is not None
    assert given.grant.size == 40
    assert bucket.stock_out == 10


def test_grant_that_is_mostly_spent_backs_less_overdraft() -> None:
    """Only tokens that may still come back can be drawn on."""
    bucket, held = run(None, ask(want=50))
    bucket, _ = run(bucket, ask(ask_no=2, settlements=(total(held, 40, final=False),)))
    assert bucket.stock_out == 10
    bucket, _ = run(bucket, ask("gw-2/1", waiting=500))
    assert bucket.tokens_micro == pytest.approx(-10 * MICRO)


def test_refusing_does_not_take_the_pressure_away() -> None:
    """Trap: pressure from refusals settles at its own threshold, because pacing removes the refusals."""
    bucket: Bucket | None = None
    stated: tuple[Settlement, ...] = ()
    refused = 0
    for step in range(400):
        asked = ask(
            ask_no=step + 1,
            plan=STANDARD,
            waiting=1,
            want=1,
            settlements=stated,
            offered=25,
            rate_per_s=100.0,
        )
        bucket, answered = run(bucket, asked, NOW_US + step * 50_000)
        stated = () if answered.grant is None else (total(answered, answered.grant.size),)
        refused += answered.refused_for_ms >= 50
    assert bucket is not None
    assert bucket.offered_per_s == pytest.approx(500, rel=0.1)
    assert refused > 100


def test_lent_tokens_hold_the_refill_back_for_a_moment_only() -> None:
    """Full strictness doubles wrongful refusals; none lets idle copies' tokens come on top."""
    bucket: Bucket | None = None
    for number in range(3):
        bucket, _ = run(bucket, ask(f"gw-{number}/1", plan=STANDARD, want=50))
    assert bucket is not None
    level = bucket.tokens_micro
    soon, _ = run(bucket, ask("gw-9/1", plan=STANDARD), NOW_US + 100_000)
    assert soon.tokens_micro < 200 * MICRO - 50 * MICRO
    assert soon.tokens_micro >= level
    later, _ = run(bucket, ask("gw-9/1", plan=STANDARD), NOW_US + 4 * SECOND_US)
    assert later.tokens_micro > 195 * MICRO


def test_backwards_clock_is_counted() -> None:
    """E6: an operator must be able to see it."""
    bucket, _ = run(None, ask())
    for ask_no, step_us in ((2, -1), (3, 0), (4, -3 * SECOND_US), (5, -20 * SECOND_US)):
        bucket, _ = run(bucket, ask(ask_no=ask_no), NOW_US + step_us)
    assert bucket.clock_back == 3
    assert bucket.clock_us == NOW_US - 20 * SECOND_US


def test_members_are_forgotten_when_idle_and_nothing_is_open() -> None:
    """Copies come and go; a bucket must not remember all that ever were."""
    bucket: Bucket | None = None
    for number in range(20):
        bucket, answered = run(bucket, ask(f"gw-{number}/1", waiting=1))
        bucket, _ = run(bucket, ask(f"gw-{number}/1", ask_no=2, settlements=(total(answered, 1),)))
    assert bucket is not None
    assert len(bucket.members) == 20
    bucket, _ = run(bucket, ask("gw-x/1", waiting=1), NOW_US + DEFAULT_DIALS.keep_us + EXPIRED_US)
    assert set(bucket.members) == {"gw-x/1"}


def test_tombstones_are_bounded_and_expire() -> None:
    """A copy that never settles must not fill the owner."""
    bucket: Bucket | None = None
    now_us = NOW_US
    for number in range(MOST_TOMBSTONES + 4):
        bucket, _ = run(bucket, ask(ask_no=number + 1, waiting=1), now_us)
        now_us += 2 * EXPIRED_US // 3
        bucket, _ = run(bucket, ask("gw-w/1", ask_no=number + 1), now_us)
        now_us += EXPIRED_US
        bucket, _ = run(bucket, ask("gw-w/1", ask_no=number + 100), now_us)
    assert bucket is not None
    assert 0 < len(bucket.members["gw-1/1"].tombstones) <= MOST_TOMBSTONES
    bucket, _ = run(bucket, ask("gw-w/1", ask_no=1_000), now_us + 2 * DEFAULT_DIALS.keep_us)
    assert "gw-1/1" not in bucket.members


def test_member_with_too_many_open_grants_is_lent_no_more() -> None:
    """A copy with a fault must not make its record grow without end."""
    bucket: Bucket | None = None
    named: list[Settlement] = []
    for number in range(MOST_OPEN + 3):
        bucket, answered = run(bucket, ask(ask_no=number + 1, waiting=1, settlements=tuple(named)))
        if answered.grant is not None:
            named.append(total(answered, 0, final=False))
    assert len(named) == MOST_OPEN


def test_forgetting_waits_until_full_and_closed() -> None:
    """Earlier, the caller would get a second burst."""
    daily = Plan("daily", 1 / 86_400, 5)
    bucket, _ = run(None, ask(plan=daily, waiting=5))
    assert bucket.forget_at_us >= NOW_US + 5 * 86_400 * SECOND_US
    bucket, _ = run(None, ask(plan=STANDARD, want=1))
    assert bucket.forget_at_us >= NOW_US + EXPIRED_US + DEFAULT_DIALS.keep_us
