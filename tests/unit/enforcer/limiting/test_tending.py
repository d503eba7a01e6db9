"""Which accounts are settled and forgotten, and that no round looks at all of them."""

from __future__ import annotations

from enforcer.core.account import Account
from enforcer.core.resolution import Due
from enforcer.limiting.tending import Tending
from enforcer.messages import Answer, SettleCause
from enforcer.settings import LimiterSettings
from enforcer.types import Grant, Plan, Terms

S = 1_000_000_000
TERMS = Terms("rate", Plan("standard", 100.0, 200), 1)


def _holding(caller: str, *, now_ns: int) -> Account:
    account = Account(Due(caller, TERMS, None, "", -1.0, "default_plan"), now_ns=now_ns)
    ask = account.ask(ask_no=1, member="a/1", now_ns=now_ns, jitter=0.5, waiting=[1], ahead=True)
    grant = Grant(7, 10, 1, 0, 60_000_000)
    account.answered(ask, Answer(grant, 1, 0.0, 0, 0, ()), sent_ns=now_ns, now_ns=now_ns, ahead_on=False)
    return account


def test_an_account_that_keeps_spending_is_left_alone() -> None:
    """Settling a busy caller early costs it a wait, and the owner an ask."""
    tending = Tending(LimiterSettings(idle_settle_s=1))
    account = _holding("acme", now_ns=S)
    tending.watch_idle(account, S)
    for second in range(2, 6):
        account.spend(1, second * S)
        assert [] == tending.fallen_idle(second * S, busy=(), room=10)
    assert [account] == tending.fallen_idle(6 * S, busy=(), room=10)
    assert not account.holds_grant


def test_an_idle_account_keeps_its_stock_until_it_would_expire() -> None:
    """What its own rate would use is as good here as at the owner, and costs no call."""
    tending = Tending(LimiterSettings(idle_settle_s=1))
    account = _holding("acme", now_ns=S)
    account.spend(2, 2 * S)
    ask = account.ask(ask_no=2, member="a/1", now_ns=2 * S, jitter=0.5, waiting=[1], ahead=True)
    answered = Answer(Grant(8, 3, 1, 0, 5_000_000), 1, 0.0, 0, 0, ())
    account.answered(ask, answered, sent_ns=2 * S, now_ns=2 * S, ahead_on=False)
    account.spend(8, 2 * S)
    tending.watch_idle(account, 2 * S)
    for second in (3, 4, 5, 6):
        assert [] == tending.fallen_idle(second * S, busy=(), room=10)
        assert 3 == account.held
    assert [account] == tending.fallen_idle(7 * S, busy=(), room=10)
    assert not account.holds_grant


def test_a_debt_is_stated_until_it_is_heard() -> None:
    """The owner may not have been there the first time."""
    tending = Tending(LimiterSettings(idle_settle_s=1))
    account = _holding("acme", now_ns=S)
    tending.watch_idle(account, S)
    assert [account] == tending.fallen_idle(2 * S, busy=(), room=10)
    assert [account] == tending.fallen_idle(3 * S, busy=(), room=10)
    account.finals.clear()
    assert [] == tending.fallen_idle(4 * S, busy=(), room=10)
    assert not account.watched


def test_an_account_with_an_ask_under_way_is_never_asked_for_twice() -> None:
    """The second ask would disown the grant that answers the first."""
    tending = Tending(LimiterSettings(idle_settle_s=1))
    account = _holding("acme", now_ns=S)
    tending.watch_idle(account, S)
    assert [] == tending.fallen_idle(2 * S, busy={account}, room=10)
    assert account.holds_grant


def test_a_round_is_bounded_and_says_that_more_is_due() -> None:
    """Twenty thousand callers that stop at once must not hold the lock, nor wait for the next tick."""
    tending = Tending(LimiterSettings(idle_settle_s=1))
    for number in range(1_000):
        tending.watch_idle(_holding(f"caller-{number}", now_ns=S), S)
    assert not tending.is_behind(S, alone=False)
    assert 10 == len(tending.fallen_idle(2 * S, busy=(), room=10))
    assert tending.is_behind(2 * S, alone=False)
    rounds = 0
    while tending.is_behind(2 * S, alone=False):
        tending.fallen_idle(2 * S, busy=(), room=1_000)
        rounds += 1
    assert 2 <= rounds <= 5


def test_only_accounts_without_any_claim_are_forgotten() -> None:
    """Forgetting a held grant would leave it unsettled; forgetting a waiting request would lose it."""
    tending = Tending(LimiterSettings(evict_after_s=10))
    forgotten: list[str] = []
    tending.forget = lambda account: forgotten.append(account.caller)
    holding = _holding("holding", now_ns=S)
    owing = _holding("owing", now_ns=S)
    owing.close_all(SettleCause.IDLE, S)
    assert owing.finals
    assert not owing.holds_grant
    tending.watch_age(owing, S)
    quiet, recent, waited_for = (
        Account(Due(name, TERMS, None, "", -1.0, "default_plan"), now_ns=S) for name in ("quiet", "recent", "waited")
    )
    for account in (holding, quiet, recent, waited_for):
        tending.watch_age(account, S)
    recent.touched_ns = 9 * S
    tending.forget_old(10 * S, (), alone=False)
    assert [] == forgotten
    tending.forget_old(11 * S, {waited_for}, alone=False)
    assert ["quiet"] == forgotten
    tending.forget_old(21 * S, (), alone=False)
    assert ["quiet", "recent", "waited"] == forgotten
