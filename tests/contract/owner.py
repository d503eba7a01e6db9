"""The contract of an owner: one suite, run on the owner in memory and on the script on a server.

What goes wrong on the way is in `owner_faults.py`. The clock is the test's. Cases that broke other limiters carry their
number, such as E6.
"""

from __future__ import annotations

import pytest

from enforcer.core.dials import DEFAULT_DIALS
from enforcer.messages import SettleCause
from enforcer.types import Plan
from tests.contract.desk import SECOND_US, Desk, total

STANDARD = Plan("standard", 100.0, 200)
STILL = Plan("still", 1e-9, 200)
#: Tokens, to within what `STILL` refills in a test.
EXACT = pytest.approx
#: Seconds after which an unsettled grant is given back.
EXPIRED_S = (DEFAULT_DIALS.expiry_us + DEFAULT_DIALS.grace_us) / SECOND_US


class OwnerContract:
    """Inherit and give it a `desk` fixture."""

    # -- the bucket ---------------------------------------------------------------------------------------------

    def test_waiting_are_served_from_a_full_bucket_to_the_last_token(self, desk: Desk) -> None:
        """A burst was sold: a caller who was quiet gets all of it at once, and nothing beyond."""
        answer = desk.ask(plan=STANDARD, waiting=201)
        assert answer.grant is not None
        assert answer.grant.size == 200
        assert answer.tokens == 0
        assert desk.ask("gw-2/1", plan=STANDARD, waiting=1).grant is None

    def test_empty_bucket_says_when_one_token_is_there_and_keeps_its_word(self, desk: Desk) -> None:
        """E8: retry after 800 ms; then it is admitted, and a millisecond earlier it is not."""
        plan = Plan("one a second", 1.0, 1)
        desk.drain(1, plan=plan)
        desk.advance(0.2)
        refused = desk.ask(plan=plan, waiting=1, offered=0)
        assert refused.grant is None
        assert refused.refused_for_ms == 800
        desk.advance(0.799)
        assert desk.ask("gw-2/1", plan=plan, waiting=1, offered=0).grant is None
        desk.advance(0.001)
        assert desk.ask("gw-3/1", plan=plan, waiting=1, offered=0).grant is not None

    @pytest.mark.parametrize(
        ("rate_per_s", "burst"), [(54 / 60, 10), (20_000.0, 40_000), (1_000_000.0, 2_000_000), (1 / 86_400, 5)]
    )
    def test_long_run_keeps_fractions_of_tokens(self, desk: Desk, rate_per_s: float, burst: int) -> None:
        """E4, E5: from one a day to a million a second, the rate is what was sold, within 0.1 %."""
        plan = Plan("any", rate_per_s, burst)
        desk.drain(burst, plan=plan)
        step_s = max(0.9, 0.37 / rate_per_s)
        given = 0
        for number in range(1200):
            desk.advance(step_s)
            given += desk.drain(burst, plan=plan, member=f"gw-{number % 3}/1")
        expected = rate_per_s * 1200 * step_s
        assert given == pytest.approx(expected, rel=0.001, abs=1)

    def test_clock_that_steps_back_and_returns_refills_once(self, desk: Desk) -> None:
        """E6: t = 100, 99, 100: the second between is refilled one time."""
        plan = Plan("e6", 150.0, 1_000)
        desk.drain(1_000, plan=plan)
        start = desk.now_us
        levels = []
        for at_us in (start + 4 * SECOND_US, start + 3 * SECOND_US, start + 4 * SECOND_US):
            desk.set_clock(at_us)
            levels.append(desk.level(plan))
        assert levels == [600.0, 600.0, 600.0]

    def test_clock_set_back_for_good_starts_refilling_from_there(self, desk: Desk) -> None:
        """A clock that was an hour ahead must not refuse a caller for an hour after it is put right."""
        desk.drain(200, plan=STANDARD)
        desk.advance(-3600)
        assert desk.level(STANDARD) == 0
        desk.advance(1)
        assert desk.level(STANDARD) == pytest.approx(100)

    def test_grants_of_a_clock_set_back_come_home(self, desk: Desk) -> None:
        """A dead copy's tokens must not be lost until the old clock's time is reached."""
        held = desk.ask(plan=STILL, waiting=50).grant
        assert held is not None
        desk.advance(-3600)
        desk.ask("gw-2/1", plan=STILL)
        desk.advance(2 * EXPIRED_S)
        answer = desk.ask("gw-2/1", plan=STILL)
        assert [credit.grant_id for credit in answer.credited] == [held.grant_id]
        assert answer.tokens == EXACT(200)

    def test_ten_idle_years_fill_exactly_the_burst(self, desk: Desk) -> None:
        """E7: no overflow, and not a token more."""
        plan = Plan("large", 20_000.0, 40_000)
        desk.drain(40_000, plan=plan)
        desk.advance(315_360_000)
        assert desk.level(plan) == 40_000

    def test_new_plan_keeps_what_is_left_up_to_the_new_burst(self, desk: Desk) -> None:
        """E20: 40 of 100 left stay 40 under a plan of 200, and become 20 under a plan of 20."""
        desk.drain(60, plan=Plan("p", 1e-9, 100))
        assert desk.level(Plan("p", 1e-9, 200)) == EXACT(40)
        assert desk.level(Plan("p", 1e-9, 20)) == EXACT(20)

    def test_limits_of_one_caller_are_separate_buckets(self, desk: Desk) -> None:
        """A refusal by one limit charges no other (E3, at the owner)."""
        desk.ask(plan=STILL, waiting=200, limit="user")
        assert desk.ask(plan=STILL, limit="site", ask_no=1).tokens == EXACT(200)

    # -- settling -----------------------------------------------------------------------------------------------

    def test_settling_in_any_way_leaves_exactly_what_was_spent(self, desk: Desk) -> None:
        """E25: three times, one dropped, two reordered, across the expiry, and once after it."""
        grant = desk.ask(plan=STILL, waiting=100).grant
        assert grant is not None
        one, two, three, last = (total(grant.grant_id, spent, final=False) for spent in (10, 20, 30, 40))
        desk.ask(plan=STILL, settlements=[two], ask_no=3)
        desk.ask(plan=STILL, settlements=[one], ask_no=2)
        desk.ask(plan=STILL, settlements=[three], ask_no=5)
        desk.ask(plan=STILL, settlements=[three], ask_no=5)
        desk.ask(plan=STILL, settlements=[three], ask_no=5)
        desk.advance(EXPIRED_S)
        credited = desk.ask("gw-2/1", plan=STILL)
        assert [(c.grant_id, c.member, c.size, c.spent) for c in credited.credited] == [
            (grant.grant_id, "gw-1/1", 100, 30)
        ]
        assert credited.tokens == EXACT(170)
        desk.ask(plan=STILL, settlements=[last], ask_no=6)
        final = total(grant.grant_id, 45, cause=SettleCause.EXPIRY)
        for number in (8, 7, 8, 9):
            desk.ask(plan=STILL, settlements=[final], ask_no=number)
        assert desk.ask("gw-2/1", plan=STILL).tokens == EXACT(155)

    def test_final_is_final_whatever_arrives_after_it(self, desk: Desk) -> None:
        """A reordered, older total must not open a closed grant again."""
        grant = desk.ask(plan=STILL, waiting=100).grant
        assert grant is not None
        desk.ask(plan=STILL, settlements=[total(grant.grant_id, 60)], ask_no=3)
        late = desk.ask(plan=STILL, settlements=[total(grant.grant_id, 20, final=False)], ask_no=2)
        assert late.tokens == EXACT(140)

    def test_settlement_in_time_is_not_credited_again_at_expiry(self, desk: Desk) -> None:
        """Given back once."""
        grant = desk.ask(plan=STILL, waiting=100).grant
        assert grant is not None
        desk.ask(plan=STILL, settlements=[total(grant.grant_id, 60)])
        desk.advance(2 * EXPIRED_S)
        answer = desk.ask("gw-2/1", plan=STILL)
        assert answer.credited == ()
        assert answer.tokens == EXACT(140)

    def test_unsettled_grant_waits_for_the_grace(self, desk: Desk) -> None:
        """The copy may state its total after the expiry; until the grace is over the owner waits for it."""
        desk.ask(plan=STILL, waiting=100)
        desk.advance(EXPIRED_S - 0.001)
        assert desk.ask("gw-2/1", plan=STILL).credited == ()
        desk.advance(0.001)
        assert len(desk.ask("gw-2/1", plan=STILL).credited) == 1

    def test_credits_of_many_copies_come_in_one_answer_in_order(self, desk: Desk) -> None:
        """A fleet that died is given back on one occasion; the ledger gets every grant."""
        grants = [desk.ask(f"gw-{n}/1", plan=STILL, waiting=n + 1).grant for n in range(15)]
        desk.advance(EXPIRED_S)
        answer = desk.ask("gw-99/1", plan=STILL)
        assert [c.grant_id for c in answer.credited] == [g.grant_id for g in grants if g is not None]
        assert [c.member for c in answer.credited] == [f"gw-{n}/1" for n in range(15)]
        assert answer.tokens == EXACT(200)

    def test_overspent_grant_is_charged(self, desk: Desk) -> None:
        """A total above the size is still what was spent."""
        grant = desk.ask(plan=STILL, waiting=100).grant
        assert grant is not None
        assert desk.ask(plan=STILL, settlements=[total(grant.grant_id, 103)]).tokens == EXACT(97)

    # -- k and sizes --------------------------------------------------------------------------------------------

    def test_k_counts_distinct_copies_of_this_window_and_the_last(self, desk: Desk) -> None:
        """It sizes the grants and stands on the pages; a copy that asks often is one copy."""
        for n in (0, 1, 2, 0, 1, 2):
            answer = desk.ask(f"gw-{n}/1", plan=STANDARD, waiting=1)
        assert answer.k == 3
        desk.advance(2)
        assert desk.ask("gw-7/1", plan=STANDARD, waiting=1).k == 3
        desk.advance(2)
        assert desk.ask("gw-7/1", plan=STANDARD, waiting=1).k == 1
        desk.advance(60)
        assert desk.ask("gw-8/1", plan=STANDARD, waiting=1).k == 1

    def test_settling_only_is_not_counted_into_k(self, desk: Desk) -> None:
        """A copy that gives tokens home is leaving."""
        desk.ask("gw-1/1", plan=STANDARD, waiting=1)
        assert desk.ask("gw-2/1", plan=STANDARD).k == 1

    def test_first_copies_leave_most_of_a_cold_bucket(self, desk: Desk) -> None:
        """E12: four copies open at once; whatever they want, the first does not take the bucket."""
        first = desk.ask("gw-0/1", plan=STANDARD, waiting=1, want=1_000)
        assert first.grant is not None
        assert first.grant.size <= 51
        for n in range(1, 4):
            assert desk.ask(f"gw-{n}/1", plan=STANDARD, waiting=1, want=1_000).grant is not None

    def test_small_burst_over_many_copies_is_served_request_by_request(self, desk: Desk) -> None:
        """E10: burst 10, 48 copies counted, 10 requests on 10 copies: all of them, and no stock strands any."""
        plan = Plan("small", 1e-9, 10)
        for n in range(48):
            desk.ask(f"gw-{n}/1", plan=plan, want=1)
        sizes = [
            answer.grant.size if answer.grant is not None else 0
            for answer in (desk.ask(f"gw-{n}/1", plan=plan, waiting=1, want=8) for n in range(10))
        ]
        assert sizes == [1] * 10

    def test_stock_is_not_lent_on_overdraft(self, desk: Desk) -> None:
        """Only the waiting may draw on what others hold; stock comes from real tokens."""
        for n in range(4):
            desk.ask(f"gw-{n}/1", plan=STANDARD, want=50)
        left = desk.ask("gw-8/1", plan=STANDARD).tokens
        answer = desk.ask("gw-8/1", plan=STANDARD, waiting=int(left) + 5, want=50)
        assert answer.grant is not None
        assert answer.grant.size == int(left) + 5
        assert answer.tokens < 0
