"""Calendar quotas at their owner: whole amounts, once a period, whatever the clock does."""

from __future__ import annotations

import pytest

from enforcer.core.bucket import answer
from enforcer.core.dials import DEFAULT_DIALS
from enforcer.core.quota import OutsideCalendar
from enforcer.core.state import Bucket
from enforcer.messages import Answer, Ask, SettleCause, Settlement
from enforcer.types import Plan

SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US
MIDNIGHT_US = 20_000 * DAY_US
NOON_US = MIDNIGHT_US + DAY_US // 2
TURNS = tuple(MIDNIGHT_US + number * DAY_US for number in range(-2, 3))
EXPIRED_US = DEFAULT_DIALS.expiry_us + DEFAULT_DIALS.grace_us


class Desk:
    """One quota of ten a day, and copies whose asks number themselves."""

    def __init__(self) -> None:
        self.bucket: Bucket | None = None
        self._ask_no = 0

    def ask(
        self,
        now_us: int,
        *settlements: Settlement,
        member: str = "gw-1/1",
        waiting: int = 0,
        want: int = 0,
        amount: int = 10,
        turns: tuple[int, ...] = TURNS,
        jitter: float = 0.5,
    ) -> Answer:
        self._ask_no += 1
        plan = Plan("daily", amount / 86_400, amount)
        asked = Ask("c", "day", plan, member, self._ask_no, settlements, waiting, want, 5.0, waiting, jitter, turns)
        self.bucket, answered = answer(self.bucket, asked, now_us, DEFAULT_DIALS)
        return answered

    def spend(self, now_us: int, tokens: int, member: str = "gw-1/1") -> int:
        """Take tokens for requests that wait, and settle them; how many there were."""
        grant = self.ask(now_us, waiting=tokens, member=member).grant
        if grant is None:
            return 0
        self.ask(now_us, Settlement(grant.grant_id, grant.size, True, SettleCause.ASK), member=member)
        return grant.size


def held(answered: Answer, spent: int, *, final: bool = False) -> Settlement:
    assert answered.grant is not None
    grant = answered.grant
    return Settlement(grant.grant_id, spent, final, SettleCause.ASK, grant.size, grant.expires_at_us)


def test_the_whole_amount_is_there_until_it_is_spent_and_then_until_the_turn_nothing() -> None:
    """No refill: an hour before midnight there is no more than there was at noon."""
    desk = Desk()
    assert desk.spend(NOON_US, 7) == 7
    assert desk.spend(NOON_US + DAY_US // 4, 7) == 3
    refused = desk.ask(NOON_US + DAY_US // 3, waiting=1)
    assert refused.grant is None
    assert refused.refused_for_ms == DAY_US // 6 // 1_000
    assert desk.ask(TURNS[3] - 1, waiting=1).refused_for_ms == 1
    assert desk.spend(TURNS[3], 20) == 10


def test_grants_end_with_the_period() -> None:
    """A token of today must not be spent tomorrow beside tomorrow's amount."""
    answered = Desk().ask(TURNS[3] - SECOND_US, waiting=1, want=4)
    assert answered.grant is not None
    assert answered.grant.expires_at_us == TURNS[3]


def test_what_an_earlier_period_gives_back_or_owes_leaves_this_one_alone() -> None:
    """A settlement that crosses midnight is about yesterday."""
    desk = Desk()
    first = desk.ask(TURNS[3] - SECOND_US, waiting=6)
    other = desk.ask(TURNS[3] - SECOND_US, waiting=4, member="gw-2/1")
    assert desk.ask(TURNS[3], held(first, 1, final=True)).tokens == 10
    assert desk.ask(TURNS[3] + EXPIRED_US).credited[0].size == 4
    assert desk.ask(TURNS[3] + EXPIRED_US, held(other, 4, final=True), member="gw-2/1").tokens == 10


def test_what_is_given_back_in_its_period_can_be_spent_in_it() -> None:
    """Stock that a quiet copy did not need is another's."""
    desk = Desk()
    first = desk.ask(NOON_US, waiting=8)
    assert desk.ask(NOON_US, held(first, 3, final=True)).tokens == 7
    assert desk.spend(NOON_US, 10) == 7


def test_grant_that_expired_unsettled_counts_as_spent_until_its_total_is_known() -> None:
    """Given back in good faith it could be spent twice, and nothing refills to make up for it."""
    desk = Desk()
    silent = desk.ask(NOON_US, waiting=8)
    later = desk.ask(NOON_US + EXPIRED_US, member="gw-2/1")
    assert later.tokens == 2
    assert [(given.size, given.spent) for given in later.credited] == [(8, 8)]
    assert desk.ask(NOON_US + EXPIRED_US + SECOND_US, held(silent, 3, final=True)).tokens == 7


def test_period_never_goes_back_with_the_clock() -> None:
    """Set back over midnight, a clock would sell yesterday's amount again; set forward and back, today's."""
    desk = Desk()
    assert desk.spend(TURNS[3] - SECOND_US, 10) == 10
    assert desk.spend(TURNS[3] + SECOND_US, 10) == 10
    back = desk.ask(TURNS[3] - 60 * SECOND_US, waiting=1)
    assert back.grant is None
    assert back.refused_for_ms == (DAY_US + 60 * SECOND_US) // 1_000
    assert desk.spend(TURNS[3] + 70 * SECOND_US, 1) == 0


def test_grants_lent_by_a_clock_that_was_set_back_belong_to_the_period_that_paid() -> None:
    """Their ids say so, or what they give back would be lost."""
    desk = Desk()
    desk.ask(TURNS[3] + SECOND_US)
    lent = desk.ask(TURNS[3] - 60 * SECOND_US, waiting=4)
    assert lent.grant is not None
    assert lent.grant.grant_id >= TURNS[3]
    assert desk.ask(TURNS[3] - 60 * SECOND_US, held(lent, 1, final=True)).tokens == 9


def test_changed_amount_leaves_used_what_was_used() -> None:
    """Upgraded from 10 to 25 after 8, there are 17; put down to 5, there is nothing."""
    desk = Desk()
    assert desk.spend(NOON_US, 8) == 8
    assert desk.ask(NOON_US, amount=25).tokens == 17
    assert desk.ask(NOON_US, amount=5).tokens == -3
    assert desk.ask(NOON_US, amount=5, waiting=1).grant is None
    assert desk.ask(NOON_US, amount=10).tokens == 2


@pytest.mark.parametrize(("jitter", "wait_ms"), [(0.0, 500), (0.5, 1_000)])
def test_while_other_copies_hold_stock_the_pause_is_short(jitter: float, wait_ms: int) -> None:
    """What they do not need comes back in seconds, not at midnight."""
    desk = Desk()
    desk.ask(NOON_US, want=2, member="gw-2/1")
    refused = desk.ask(NOON_US, waiting=10, jitter=jitter)
    assert refused.grant is not None
    assert (refused.grant.size, refused.tokens, refused.refused_for_ms) == (8, 0, wait_ms)


def test_own_stock_is_no_reason_to_come_back() -> None:
    """Whoever has spent the last of a quota is told the turn, not a second."""
    desk = Desk()
    desk.ask(NOON_US, waiting=8, want=0, member="gw-2/1")
    desk.spend(NOON_US, 1)
    last = desk.ask(NOON_US, waiting=1)
    assert last.tokens == 0
    assert last.refused_for_ms == DAY_US // 2 // 1_000


@pytest.mark.parametrize("now_us", [TURNS[0] - 1, TURNS[-1]])
def test_clock_outside_the_turns_is_told_and_nothing_is_done(now_us: int) -> None:
    """A copy whose clock is a week off must find the owner's week, and must not begin another before it has."""
    desk = Desk()
    with pytest.raises(OutsideCalendar) as raised:
        desk.ask(now_us, waiting=1)
    assert desk.bucket is None
    assert raised.value.fault.owner_now_us == now_us
    assert all(str(told) in raised.value.fault.cause for told in (now_us, TURNS[0], TURNS[-1]))


def test_state_is_kept_until_the_period_ends() -> None:
    """Forgotten earlier, the amount would be sold again."""
    desk = Desk()
    desk.spend(NOON_US, 10)
    assert desk.bucket is not None
    assert desk.bucket.forget_at_us >= TURNS[3]


def test_ids_never_pass_the_end_of_their_period() -> None:
    """Two grants in the last microsecond: the second one's id would be tomorrow's, and its debit today's."""
    desk = Desk()
    assert desk.ask(TURNS[3] - 1, waiting=2).grant is not None
    second = desk.ask(TURNS[3] - 1, waiting=2)
    assert second.grant is None
    assert second.refused_for_ms == 1
    assert desk.spend(TURNS[3], 12) == 10


def test_clock_that_was_many_periods_ahead_is_told_the_next_turn() -> None:
    """The end of the period that was begun then is out of sight, and what is lent must be known to end in it."""
    desk = Desk()
    far = tuple(turn + 30 * DAY_US for turn in TURNS)
    desk.ask(NOON_US + 30 * DAY_US, turns=far)
    refused = desk.ask(NOON_US, waiting=1)
    assert refused.grant is None
    assert refused.refused_for_ms == DAY_US // 2 // 1_000
