"""What must hold of an owner and its copies, as named predicates over plain numbers and states.

Each raises AssertionError with the figures. They know the rules, never the way in which they are kept.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from enforcer.core.bucket import answer
from enforcer.core.dials import Dials, epsilon_tokens
from enforcer.core.sizing import MICRO
from enforcer.core.state import Bucket, unspent_stock
from enforcer.messages import Answer, Ask
from enforcer.types import Plan

#: Half a millionth of a token for each answer, and the rounding of doubles: never near one token.
ROUNDING_TOKENS = 0.01


@dataclass
class Admissions:
    """Running account of what was admitted, so that the worst window of all is one subtraction.

    Attributes:
        admitted: tokens of admitted requests so far. Those that waited count when the owner debited them.
        refilled_s: seconds for which the owner's clock has refilled.
        beyond: tokens that the bound does not speak of: spent and never settled in time (the owner gave them back in
            good faith), spent of grants that the owner no longer knew, and a bucket that started anew, full.
        lowest: the least that the excess ever was.
    """

    admitted: int = 0
    refilled_s: float = 0.0
    beyond: float = 0.0
    lowest: float = 0.0

    def excess(self, plan: Plan) -> float:
        """Admitted beyond the rate, up to now."""
        return self.admitted - plan.rate_per_s * self.refilled_s - self.beyond


def admitted_within_burst_rate_and_epsilon(
    admissions: Admissions, plan: Plan, dials: Dials, *, copies: int, largest_cost: int
) -> None:
    """In any window of t seconds: at most burst + rate × t + ε."""
    excess = admissions.excess(plan)
    admissions.lowest = min(admissions.lowest, excess)
    allowed = plan.burst + epsilon_tokens(plan.burst, dials, copies=copies, largest_cost=largest_cost)
    worst = excess - admissions.lowest
    assert worst <= allowed + ROUNDING_TOKENS, f"{worst} tokens beyond the rate in one window; allowed {allowed}"


def nothing_is_minted(bucket: Bucket, plan: Plan, dials: Dials, *, adopted: Set[int] = frozenset()) -> None:
    """The bucket never holds more than the burst, and never lends more stock than its share of ε.

    `adopted` grants were lent before the owner lost its state: they come on top.
    """
    assert bucket.tokens_micro <= plan.burst * MICRO
    counted = sum(unspent_stock(grant) for member in bucket.members.values() for grant in member.open)
    assert counted == bucket.stock_out, "the running count of lent stock differs from the grants"
    opened = [grant for member in bucket.members.values() for grant in member.open]
    on_top = sum(unspent_stock(grant) for grant in opened if grant.grant_id in adopted)
    assert 0 <= bucket.stock_out - on_top <= (dials.epsilon - dials.overdraft) * plan.burst
    assert 0.0 <= bucket.lent <= bucket.stock_out


def waiting_never_overdraw(after: Bucket, given: Answer, plan: Plan, dials: Dials) -> None:
    """Whoever is given something leaves the bucket above the overdraft."""
    if given.grant is not None:
        assert after.tokens_micro >= -dials.overdraft * plan.burst * MICRO - 1.0


def settling_twice_changes_nothing(bucket: Bucket, asked: Ask, dials: Dials) -> None:
    """The same ask again, in the same microsecond: not a token moves and nothing is granted."""
    again, answered = answer(bucket, asked, bucket.clock_us, dials)
    assert answered.grant is None, "one ask was granted twice"
    assert answered.credited == ()
    assert again.tokens_micro == bucket.tokens_micro
    assert again.members == bucket.members
    assert again.stock_out == bucket.stock_out


def retry_after_is_enough(bucket: Bucket, asked: Ask, refused: Answer, dials: Dials) -> None:
    """Whoever is told to come back then, and does, is admitted, if nobody else took the token."""
    later = Ask(
        caller=asked.caller,
        limit=asked.limit,
        plan=asked.plan,
        member=asked.member,
        ask_no=asked.ask_no + 1,
        settlements=tuple(s for s in asked.settlements if not s.final),
        waiting=1,
        want=0,
        rate_per_s=asked.rate_per_s,
        offered=1,
        jitter=0.0,
    )
    _, answered = answer(bucket, later, refused.owner_now_us + refused.refused_for_ms * 1_000, dials)
    assert answered.grant is not None, f"refused for {refused.refused_for_ms} ms, and refused again after it"


def k_counts_distinct_copies(given: Answer, asked_lately: int) -> None:
    """K is never more than the copies that asked for tokens in this window and the one before."""
    assert given.k <= asked_lately


def grant_ids_rise(last: int, issued: int) -> None:
    """No id is ever used twice for a bucket."""
    assert issued > last


def time_never_moves_back(before: Bucket | None, after: Bucket, now_us: int, dials: Dials) -> None:
    """The stored time stays, however the clock jumps; only a clock that was set back for good begins anew."""
    if before is not None and before.clock_us - now_us <= dials.clock_back_us:
        assert after.clock_us == max(before.clock_us, now_us)


def settled_totals_equal_what_was_spent(tokens_micro: float, plan: Plan, told: dict[int, int]) -> None:
    """In a bucket that hardly refills: what is missing is exactly what was stated, whatever the order."""
    missing = plan.burst - tokens_micro / MICRO
    assert abs(missing - sum(told.values())) <= ROUNDING_TOKENS


def living_copies_told_all(told: dict[int, int], spent: dict[int, int], crashed: set[int]) -> None:
    """Of every grant that no crash took, the owner knows exactly what was spent."""
    for grant_id, total in told.items():
        true_total = spent.get(grant_id, 0)
        assert total <= true_total
        assert grant_id in crashed or total == true_total
