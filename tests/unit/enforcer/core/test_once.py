"""What may be done once is not done twice, and that is known in a bounded memory."""

from __future__ import annotations

from enforcer.core.once import MOST, Once


def test_once_knows_the_last_numbers_and_forgets_the_oldest() -> None:
    """A copy lives for months; what it remembers must not grow with it."""
    once = Once()
    assert all(once.is_first(number) for number in range(MOST))
    assert not once.is_first(0)
    assert once.is_first(MOST)
    assert not once.is_first(1)
    assert once.is_first(0)
