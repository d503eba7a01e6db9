"""What an idle copy keeps, and what it gives back."""

from __future__ import annotations

from enforcer.core.idle import goes_home
from tests.unit.enforcer.core.test_account import NOW, Book, S


def test_a_copy_keeps_what_its_own_rate_would_use_and_gives_home_the_rest() -> None:
    """With 120 copies each holds one token: giving it back and asking for it again would double the calls."""
    book = Book()
    book.grant(2)
    assert goes_home(book.account, NOW + S), "a copy without a rate has no use for stock"
    for second in range(1, 9):
        book.account.spend(1, NOW + second * S)
        book.account.spend(1, NOW + second * S)
        book.grant(2, now_ns=NOW + second * S)
    at_ns = NOW + 8 * S
    assert (2, 2) == (round(book.account.rate_per_s), book.account.held)
    assert not goes_home(book.account, at_ns + S)
    book.grant(9, now_ns=at_ns)
    assert goes_home(book.account, at_ns + S)


def test_no_grant_is_kept_long_past_its_expiry() -> None:
    """The owner would give it back without knowing what was spent of it, and lend those tokens again."""
    book = Book()
    for second in range(3):
        book.grant(2, now_ns=NOW + second * S)
        book.account.spend(1, NOW + second * S)
        book.account.spend(1, NOW + second * S)
    until_ns = NOW + 7 * S
    assert not goes_home(book.account, until_ns + S // 4)
    assert goes_home(book.account, until_ns + S)
