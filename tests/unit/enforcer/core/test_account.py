"""The arithmetic of one copy's grants: totals, what it asks for, and how long it refuses alone."""

from __future__ import annotations

import pytest

from enforcer.core.account import Account
from enforcer.core.resolution import Due
from enforcer.messages import Answer, Ask, SettleCause, Settlement
from enforcer.types import MAX_RETRY_MS, Grant, Plan, Terms

S = 1_000_000_000
PLAN = Plan("standard", 100.0, 200)
NOW = 10 * S


class Book:
    """An account with an owner that answers what the test says."""

    def __init__(self) -> None:
        self.account = Account(Due("acme", Terms("rate", PLAN, 1), None, "", -1.0, "default_plan"), now_ns=NOW)
        self.asked = 0

    def ask(self, *, now_ns: int = NOW, waiting: tuple[int, ...] = (), ahead: bool = True) -> Ask:
        self.asked += 1
        return self.account.ask(
            ask_no=self.asked, member="a/1", now_ns=now_ns, jitter=0.5, waiting=waiting, ahead=ahead
        )

    def answer(
        self,
        ask: Ask,
        size: int,
        *,
        grant_id: int = 0,
        now_ns: int = NOW,
        refused_for_ms: int = 0,
        tokens: float = 50.0,
        ahead_on: bool = True,
    ) -> None:
        grant = Grant(grant_id or self.asked, size, 4, 1_000, 5_001_000) if size else None
        answer = Answer(grant, 4, tokens, refused_for_ms, 1_000, ())
        self.account.answered(ask, answer, sent_ns=now_ns - 1_000, now_ns=now_ns, ahead_on=ahead_on)

    def grant(self, size: int, *, now_ns: int = NOW) -> None:
        self.answer(self.ask(now_ns=now_ns, waiting=(1,)), size, now_ns=now_ns)


def test_first_ask_wants_one_and_states_nothing() -> None:
    """Slow start: a cold caller must not empty the bucket into one copy."""
    ask = Book().ask(waiting=(1, 1))
    assert (2, 1, (), 0) == (ask.waiting, ask.want, ask.settlements, ask.offered)


def test_stock_follows_the_copys_own_rate_and_at_most_doubles() -> None:
    """Rule 4: min(rate × 2 s, twice the last grant)."""
    book = Book()
    book.grant(10)
    for _ in range(10):
        book.account.spend(1, NOW)
    fast = book.ask(now_ns=NOW + S // 100, waiting=(1,))
    assert 20 == fast.want
    assert 900 < fast.rate_per_s < 1_100
    slow = Book()
    slow.grant(10)
    for _ in range(3):
        slow.account.spend(1, NOW)
    assert 3 == slow.ask(now_ns=NOW + 2 * S, waiting=(1,)).want


def test_a_copy_below_one_token_per_grant_asks_per_request() -> None:
    """It must never hold a floor of one."""
    book = Book()
    book.grant(1)
    assert 0 == book.account.spend(1, NOW)
    assert 0 == book.ask(now_ns=NOW + 5 * S, waiting=(1,)).want


def test_totals_are_stated_until_they_are_acknowledged() -> None:
    """An ask whose answer never came may not have arrived: its totals are stated again."""
    book = Book()
    book.grant(2)
    book.account.spend(1, NOW)
    book.account.spend(1, NOW)
    spent = Settlement(1, 2, True, SettleCause.ASK)
    assert (spent,) == book.ask(waiting=(1,)).settlements
    again = book.ask(waiting=(1,))
    assert (spent,) == again.settlements
    book.answer(again, 5)
    assert () == tuple(s for s in book.ask().settlements if s.grant_id == 1)


def test_a_total_that_became_final_after_the_ask_is_not_taken_for_heard() -> None:
    """While an ask is under way the fast path goes on: what it finishes then, the owner does not know yet."""
    book = Book()
    book.grant(4)
    book.answer(book.ask(), 6)
    under_way = book.ask()
    for _ in range(5):
        book.account.spend(1, NOW)
    book.answer(under_way, 0)
    assert Settlement(1, 4, True, SettleCause.ASK) in book.ask().settlements


def test_a_grant_in_reserve_ends_local_refusals() -> None:
    """Refusing while the next grant lies ready would be a refusal that should never have happened."""
    book = Book()
    book.answer(book.ask(waiting=(1,)), 8, refused_for_ms=500)
    assert book.account.refused_until_ns(1) > NOW
    book.answer(book.ask(), 5)
    assert book.account.current.refused_until_ns == 0
    assert book.account.refused_until_ns(1) <= NOW


def test_an_open_grant_is_named_in_every_ask() -> None:
    """What is not named, the owner takes for never arrived and gives back: it would be spent twice."""
    book = Book()
    book.grant(8)
    book.account.spend(3, NOW)
    assert (Settlement(1, 3, False, SettleCause.ASK, 8, 5_001_000),) == book.ask().settlements


def test_the_next_grant_is_spent_after_the_current_one() -> None:
    """Asked ahead, a steady caller never waits."""
    book = Book()
    book.grant(4)
    book.account.spend(3, NOW)
    book.answer(book.ask(), 6)
    assert 7 == book.account.held
    assert [0, 5] == [book.account.spend(1, NOW) for _ in range(2)]
    assert [Settlement(1, 4, True, SettleCause.ASK)] == book.account.take_unreported()
    assert book.account.current.grant is not None
    assert 2 == book.account.current.grant.grant_id


def test_of_three_grants_the_oldest_goes_home_at_once() -> None:
    """Slow round trips bring a third: what can no longer be reached would lie idle until it expires."""
    book = Book()
    book.grant(4)
    book.account.spend(1, NOW)
    book.answer(book.ask(), 6)
    book.answer(book.ask(waiting=(1,)), 9)
    assert [Settlement(1, 1, True, SettleCause.ASK)] == book.account.take_unreported()
    assert 15 == book.account.held
    assert [5 - n for n in range(6)] + [8 - n for n in range(9)] == [book.account.spend(1, NOW) for _ in range(15)]


def test_a_copy_with_a_grant_in_reserve_asks_for_no_third() -> None:
    """It was queued for a request that has been served since: stock on top of stock is missing elsewhere."""
    book = Book()
    book.grant(40)
    for _ in range(10):
        book.account.spend(1, NOW)
    ahead = book.ask(now_ns=NOW + S // 100)
    assert ahead.want > 0
    book.answer(ahead, 6)
    assert 0 == book.ask(now_ns=NOW + S // 50).want


def test_what_is_too_little_for_the_first_in_line_goes_home() -> None:
    """It comes back as part of one grant that is large enough."""
    book = Book()
    book.grant(8)
    assert -1 == book.account.spend(10, NOW)
    ask = book.ask(waiting=(10,))
    assert (Settlement(1, 0, True, SettleCause.ASK),) == ask.settlements
    assert -1 == book.account.spend(1, NOW)


def test_nothing_is_spent_after_expiry() -> None:
    """The owner gives an expired grant back: spending it too would spend it twice."""
    book = Book()
    book.grant(8)
    late = NOW - 1_000 + 5 * S
    assert 7 == book.account.spend(1, late - 1)
    assert -1 == book.account.spend(1, late)
    assert (Settlement(1, 1, True, SettleCause.EXPIRY),) == book.ask(now_ns=late, waiting=(1,)).settlements


def test_refused_until_counts_from_the_answer_and_rounds_up() -> None:
    """E8: retrying when told is admitted."""
    book = Book()
    book.answer(book.ask(waiting=(1,)), 0, refused_for_ms=800, tokens=0.2)
    assert NOW + 800_000_000 == book.account.refused_until_ns(1)
    assert 800 == book.account.retry_after_ms(1, NOW)
    assert 800 == book.account.retry_after_ms(1, NOW + 1)
    assert 1 == book.account.retry_after_ms(1, NOW + 900_000_000)


def test_a_dear_request_is_told_when_so_many_tokens_will_be_there() -> None:
    """The wait to one token is no answer for a cost of ten."""
    book = Book()
    book.answer(book.ask(waiting=(10,)), 0, refused_for_ms=5, tokens=0.5)
    assert 95 == book.account.retry_after_ms(10, NOW)
    assert NOW + 95_000_000 == book.account.refused_until_ns(10)
    assert 1_995 == book.account.retry_after_ms(200, NOW)
    assert NOW + S == book.account.refused_until_ns(200)


def test_a_caller_that_was_never_answered_may_always_ask() -> None:
    """Nothing is known of it, so nothing can be refused from memory."""
    assert Book().account.refused_until_ns(150) <= NOW


def test_offered_counts_admitted_and_refused_once() -> None:
    """The owner paces by offered load; counted twice it would pace callers inside their plan."""
    book = Book()
    book.grant(4)
    for _ in range(4):
        book.account.spend(1, NOW)
    book.account.refuse(3)
    book.account.current.left -= 2
    lost = book.ask(waiting=(1,))
    assert 9 == lost.offered
    assert (Settlement(1, 4, True, SettleCause.ASK),) == lost.settlements, "what was refused was not spent"
    heard = book.ask(waiting=(1,))
    assert 9 == heard.offered
    book.answer(heard, 1)
    assert 0 == book.ask().offered
    book.account.spend(1, NOW)
    assert 1 == book.ask().offered


def test_low_water_is_a_quarter_and_off_when_the_owner_is_quick_or_short() -> None:
    """Asking early costs asks; it is for slow owners, and never for an empty bucket."""
    book = Book()
    book.answer(book.ask(waiting=(1,)), 40)
    assert 10 == book.account.current.low
    quick = Book()
    quick.answer(quick.ask(waiting=(1,)), 40, ahead_on=False)
    assert 0 == quick.account.current.low
    short = Book()
    short.answer(short.ask(waiting=(1,)), 40, refused_for_ms=10, tokens=0.0)
    assert 0 == short.account.current.low


def test_closing_makes_every_total_final_exactly_once() -> None:
    """Two different finals of one grant would make the ledger doubt both."""
    book = Book()
    book.grant(4)
    book.answer(book.ask(), 6)
    book.account.spend(2, NOW)
    book.account.close_all(SettleCause.CLOSE, NOW)
    book.account.close_all(SettleCause.IDLE, NOW)
    expected = [Settlement(1, 2, True, SettleCause.CLOSE), Settlement(2, 0, True, SettleCause.CLOSE)]
    assert expected == book.account.take_unreported()
    assert [] == book.account.take_unreported()
    assert (0, False, 2) == (book.account.held, book.account.holds_grant, book.account.spent)
    assert -1 == book.account.spend(1, NOW)


def test_a_wait_of_lifetimes_is_cut_to_what_nanoseconds_can_say() -> None:
    """A plan of one token in a century must not make decisions that the log has no room for."""
    book = Book()
    book.answer(book.ask(waiting=(1,)), 0, refused_for_ms=2**42)
    assert NOW + MAX_RETRY_MS * 1_000_000 == book.account.retry_at_ns(1)
    assert MAX_RETRY_MS == book.account.retry_after_ms(1, NOW)


@pytest.mark.parametrize(("tokens", "told_ns"), [(0.75, 454_000_000), (-90.0, 637_000_000)])
def test_totals_that_go_home_do_not_make_a_wait_longer_that_was_told(tokens: float, told_ns: int) -> None:
    """A client that waited as told was refused again for a pause that was drawn meanwhile."""
    book = Book()
    book.answer(book.ask(waiting=(1,)), 0, refused_for_ms=454, tokens=0.0)
    assert NOW + 454_000_000 == book.account.retry_at_ns(1)
    later = NOW + 250_000_000
    book.answer(book.ask(now_ns=later, ahead=False), 0, now_ns=later, refused_for_ms=387, tokens=tokens)
    assert NOW + told_ns == book.account.retry_at_ns(1)


def test_the_last_bits_of_a_fraction_are_no_wait_of_their_own() -> None:
    """4.505 of 5 tokens at a rate of 100 are whole after 4.95 ms, not one nanosecond and so one millisecond later."""
    book = Book()
    book.answer(book.ask(waiting=(5,)), 0, tokens=4.505, refused_for_ms=0)
    assert 5 == book.account.retry_after_ms(5, NOW)
    assert book.account.retry_at_ns(5) <= NOW + 4_950_000
