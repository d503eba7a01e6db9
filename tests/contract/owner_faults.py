"""The contract of an owner when things go wrong: lost answers, late asks, restarts, lost state, malformed asks.

One suite, run on the owner in memory and on the script on a server. The clock is the test's.
"""

from __future__ import annotations

import pytest

from enforcer.core.dials import DEFAULT_DIALS
from enforcer.errors import InvalidField, OwnerUnavailable
from enforcer.messages import Ask, AskFault, SettleCause, Settlement
from enforcer.types import Plan
from tests.contract.desk import Desk, answers, total
from tests.contract.owner import EXACT, EXPIRED_S, STANDARD, STILL

_EXPIRY_US = DEFAULT_DIALS.expiry_us


def _held(grant_id: int, size: int, *, expires_at_us: int) -> Settlement:
    """What a copy says of a grant that it holds, of which nothing is spent."""
    return Settlement(grant_id, 0, False, SettleCause.ASK, size, expires_at_us)


class OwnerFaults:
    """Inherit and give it a `desk` fixture."""

    # -- lost answers, late asks, restarts ----------------------------------------------------------------------

    def test_newer_ask_that_does_not_name_a_grant_gives_it_back(self, desk: Desk) -> None:
        """The answer was lost: nobody spends that grant, so it must not be missing for five seconds."""
        assert desk.ask(plan=STILL, waiting=150).grant is not None
        again = desk.ask(plan=STILL, waiting=150)
        assert again.grant is not None
        assert again.grant.size == 150
        assert again.tokens == EXACT(50)

    def test_named_grants_stay_open(self, desk: Desk) -> None:
        """Current and next grant are held at once."""
        first = desk.ask(plan=STILL, waiting=50).grant
        assert first is not None
        desk.ask(plan=STILL, waiting=30, settlements=[total(first.grant_id, 20, final=False)])
        assert desk.ask("gw-2/1", plan=STILL).tokens == EXACT(120)

    def test_late_ask_settles_but_takes_nothing(self, desk: Desk) -> None:
        """Its copy has given up on it: tokens lent to it would be lost."""
        first = desk.ask(plan=STILL, waiting=50, ask_no=1).grant
        assert first is not None
        desk.ask(plan=STILL, settlements=[total(first.grant_id, 10, final=False)], ask_no=3)
        late = desk.ask(
            plan=STILL, waiting=50, want=50, settlements=[total(first.grant_id, 50)], ask_no=2, offered=10_000
        )
        assert late.grant is None
        assert late.tokens == EXACT(150)

    def test_same_ask_twice_grants_once(self, desk: Desk) -> None:
        """A retransmission is not a second request."""
        assert desk.ask(plan=STILL, waiting=50, ask_no=1).grant is not None
        again = desk.ask(plan=STILL, waiting=50, ask_no=1)
        assert again.grant is None
        assert again.tokens == EXACT(150)

    def test_restarted_copy_is_another_member(self, desk: Desk) -> None:
        """Its first ask is not taken for a late one, and its former life's grant comes home by expiry."""
        desk.ask("gw-1/1", plan=STILL, waiting=50, ask_no=70)
        again = desk.ask("gw-1/2", plan=STILL, waiting=50, ask_no=1)
        assert again.grant is not None
        assert again.k == 2
        desk.advance(EXPIRED_S)
        assert desk.ask("gw-1/2", plan=STILL, settlements=[total(again.grant.grant_id, 50)]).tokens == EXACT(150)

    def test_owner_that_lost_its_state_starts_full_and_mints_nothing(self, desk: Desk) -> None:
        """Counters may be lost; settling a grant that the owner no longer knows must not add to the new bucket."""
        grant = desk.ask(plan=STILL, waiting=150).grant
        assert grant is not None
        desk.lose_state()
        desk.advance(0.001)
        again = desk.ask(plan=STILL, waiting=10, settlements=[total(grant.grant_id, 0)])
        assert again.tokens == EXACT(190)
        assert again.grant is not None
        assert again.grant.grant_id > grant.grant_id

    def test_grants_that_are_taken_in_debit_the_new_bucket_to_one_burst_below_empty_and_no_further(
        self, desk: Desk
    ) -> None:
        """A debt of many bursts, from copies that all held a lot, would shut the caller out long after the loss."""
        told = []
        for number in range(5):
            held = _held(desk.now_us - number, 150, expires_at_us=desk.now_us + _EXPIRY_US)
            told.append(desk.ask(f"gw-{number}/1", plan=STILL, settlements=[held]))
        assert [answer.adopted for answer in told] == [1] * 5
        assert [answer.tokens for answer in told] == EXACT([50, -100, -200, -200, -200])

    def test_a_grant_from_further_ahead_than_a_grant_lasts_is_not_taken_in(self, desk: Desk) -> None:
        """Its id is of another clock: all ids that this owner gives would lie below it until its clock gets there."""
        ahead_us = desk.now_us + _EXPIRY_US
        for grant_id, adopted in ((ahead_us + 1, 0), (ahead_us, 1)):
            held = _held(grant_id, 50, expires_at_us=grant_id + _EXPIRY_US)
            assert desk.ask(f"gw-{grant_id}/1", plan=STILL, settlements=[held]).adopted == adopted
        assert desk.level(STILL) == EXACT(150)

    def test_a_scan_gives_back_only_what_is_past_its_own_grace(self, desk: Desk) -> None:
        """A copy has the grace to say what it spent: given back before, the same tokens are lent twice."""
        first = desk.ask("gw-1/1", plan=STILL, waiting=10).grant
        desk.advance(0.9)
        second = desk.ask("gw-2/1", plan=STILL, waiting=20).grant
        assert first is not None
        assert second is not None
        desk.advance(EXPIRED_S - 0.9)
        told = desk.ask("watcher/1", plan=STILL)
        assert [given.grant_id for given in told.credited] == [first.grant_id]
        assert told.tokens == EXACT(180)
        desk.advance(0.9)
        assert [given.grant_id for given in desk.ask("watcher/1", plan=STILL).credited] == [second.grant_id]

    def test_grant_ids_rise_even_within_one_microsecond(self, desk: Desk) -> None:
        """The ledger joins by them."""
        grants = [desk.ask(f"gw-{n}/1", plan=STANDARD, waiting=1).grant for n in range(5)]
        ids = [grant.grant_id for grant in grants if grant is not None]
        assert ids == sorted(set(ids))
        assert len(ids) == 5

    # -- bad input ----------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("field", "ask"),
        [
            ("plan.rate_per_s", {"plan": Plan("p", 0.0, 1)}),
            ("plan.rate_per_s", {"plan": Plan("p", float("nan"), 1)}),
            ("plan.burst", {"plan": Plan("p", 1.0, 0)}),
            ("waiting", {"waiting": -1}),
            ("want", {"want": 1 << 40}),
            ("rate_per_s", {"rate_per_s": float("inf")}),
            ("jitter", {"jitter": 1.0}),
            ("offered", {"offered": -5}),
            ("ask_no", {"ask_no": 0}),
            ("member", {"member": "bucket"}),
            ("settlement.spent", {"settlements": [total(7, -1)]}),
        ],
    )
    def test_malformed_ask_names_its_fault_and_changes_nothing(
        self, desk: Desk, field: str, ask: dict[str, object]
    ) -> None:
        """A wrong number would be packed into the state and spoil the bucket for everyone."""
        with pytest.raises(InvalidField, match=field.replace(".", r"\.")):
            desk.ask(**{"member": "gw-1/1", "plan": STILL, "ask_no": 1, **ask})  # type: ignore[arg-type]  # wrong on purpose
        assert desk.ask(plan=STILL, ask_no=1).tokens == EXACT(200)

    @pytest.mark.parametrize("caller", ["", "{", "}{", "a\x00b", "é" * 600, "x" * 1_000_000, "\udcff", "a:b"])
    def test_any_text_is_a_caller(self, desk: Desk, caller: str) -> None:
        """Keys come from outside; none may break out of its bucket or into another's."""

        def ask(limit: str, waiting: int, ask_no: int) -> float:
            asked = Ask(f"{desk.caller}{caller}", limit, STILL, "gw-1/1", ask_no, (), waiting, 0, 0.0, 0, 0.0)
            return answers(desk.owner.ask([asked]))[0].tokens

        assert ask("rate", 30, 1) == EXACT(170)
        assert ask("other", 0, 1) == EXACT(200)

    def test_answers_stand_in_the_order_of_the_asks(self, desk: Desk) -> None:
        """One round trip serves many callers; an answer to the wrong one would be another's tokens."""
        asks = [Ask(f"{desk.caller}-{n}", "rate", STILL, "gw-1/1", 1, (), n, 0, 0.0, n, 0.0) for n in range(1, 120)]
        answered = answers(desk.owner.ask(asks))
        assert [a.grant.size if a.grant else 0 for a in answered] == list(range(1, 120))
        assert desk.owner.ask([]) == []

    # -- one bad bucket -----------------------------------------------------------------------------------------

    def test_spoiled_bucket_faults_its_own_ask_alone(self, desk: Desk) -> None:
        """One caller's broken state must not cost the others of the round trip their answers, then or ever after."""
        asks = [Ask(f"{desk.caller}-{n}", "rate", STILL, "gw-1/1", 1, (), n, 0, 0.0, n, 0.0) for n in range(1, 6)]
        asks[2] = self.any_ask(desk)
        desk.spoil()
        for _ in range(2):
            outcomes = desk.owner.ask(asks)
            assert [isinstance(outcome, AskFault) for outcome in outcomes] == [False, False, True, False, False]
            assert isinstance(outcomes[2], AskFault)
            assert outcomes[2].cause
        desk.owner.probe()
        desk.lose_state()
        assert desk.ask(plan=STILL, waiting=1).grant is not None

    # -- the probe ----------------------------------------------------------------------------------------------

    def test_probe_takes_nothing_and_is_not_counted(self, desk: Desk) -> None:
        """It goes out once a second and copy for as long as an outage lasts."""
        for _ in range(3):
            desk.owner.probe()
        first = desk.ask(plan=STANDARD, waiting=1)
        assert first.k == 1
        assert first.tokens == 199

    def test_probe_fails_where_asks_are_refused(self, desk: Desk) -> None:
        """An owner that is there and refuses to decide is away: believing it would make requests pay for it."""
        refusing = desk.refusing()
        for call in (refusing.probe, lambda: refusing.ask([self.any_ask(desk)]), refusing.probe):
            with pytest.raises(OwnerUnavailable):
                call()
        refusing.close()

    @staticmethod
    def any_ask(desk: Desk) -> Ask:
        """Of this test's caller."""
        return Ask(desk.caller, "rate", STANDARD, "gw-9/1", 1, (), 1, 0, 0.0, 1, 0.0)

    def test_closing_twice_is_safe(self, desk: Desk) -> None:
        """Shutdown paths meet."""
        desk.owner.probe()
        desk.owner.close()
        desk.owner.close()
