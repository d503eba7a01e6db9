"""The requests that wait for one owner, by account; who of them an answer decides, and how they are woken.

It never asks the owner, and never makes a request wait: the limiter lines up, the asker serves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence

from enforcer.core.account import Account
from enforcer.limiting.waiter import Waiter
from enforcer.types import Verdict

log = logging.getLogger("enforcer")


class Desk:
    """How those who waited are decided; the limiter's.

    Attributes:
        settle: decide from what is held now; if that cannot be, have it wait for those that lack tokens, and return
            None. Given the account that was just asked for this request: then what it did not give it refuses.
        alone: decide without the owners.
        shadow: take note of what a limit in shadow mode says.
    """

    __slots__ = ("alone", "settle", "shadow")

    def __init__(
        self,
        settle: Callable[[Waiter, Account, int], Verdict | None],
        alone: Callable[[Waiter], Verdict],
        shadow: Callable[[Waiter, int], None],
    ) -> None:
        self.settle = settle
        self.alone = alone
        self.shadow = shadow


class Lines:
    """One line for each account that is waited for, oldest first. Kept under the limiter's lock."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._lines: dict[Account, list[Waiter]] = {}

    @property
    def accounts(self) -> Collection[Account]:
        """Those that are waited for."""
        return self._lines.keys()

    def __len__(self) -> int:
        """How many requests wait."""
        return sum(len(line) for line in list(self._lines.values()))

    def add(self, waiter: Waiter, account: Account) -> None:
        """Have a request wait for this account's next answer, unless it does."""
        if account not in waiter.lined:
            waiter.lined.add(account)
            self._lines.setdefault(account, []).append(waiter)

    def count_in(self, account: Account) -> list[int]:
        """Costs of the requests that the ask now being composed is for."""
        line = [waiter for waiter in self._lines.get(account, ()) if not waiter.is_over]
        for waiter in line:
            waiter.counted.add(account)
        return [waiter.cost for waiter in line]

    def serve(self, account: Account, now_ns: int) -> list[Waiter]:
        """Decide by the answer just taken in; one that is too dear does not hold up the others.

        Returns:
            Whom to wake. Those whom no ask has counted yet, and who cannot be served without one, stay in line.
        """
        decided: list[Waiter] = []
        staying: list[Waiter] = []
        for waiter in self._lines.pop(account, ()):
            if waiter.is_over:
                continue
            if account not in waiter.counted and not _is_settled(account, waiter.cost, now_ns):
                staying.append(waiter)
                continue
            waiter.lined.discard(account)
            if waiter.in_shadow is account:
                self._desk.shadow(waiter, now_ns)
                continue
            if waiter.lined:
                # What is known of the others is older than the asks that are out for them: the last answer decides.
                continue
            waiter.verdict = self._desk.settle(waiter, account, now_ns)
            if waiter.verdict is not None:
                decided.append(waiter)
        if staying:
            self._lines[account] = [*staying, *self._lines.pop(account, ())]
        return decided

    def take(self, account: Account) -> list[Waiter]:
        """Nobody waits for this account here any more: they line up elsewhere, as if they had just come."""
        taken = [waiter for waiter in self._lines.pop(account, ()) if not waiter.is_over]
        for waiter in taken:
            waiter.lined.discard(account)
            waiter.counted.discard(account)
        return taken

    def release(self, account: Account) -> list[Waiter]:
        """Nobody waits for this account any more: all are decided without its owner; returns whom to wake.

        Here and not where they go on: a thread that wakes late would decide after the record was closed.
        """
        released = [
            waiter for waiter in self._lines.pop(account, ()) if not waiter.is_over and waiter.in_shadow is None
        ]
        for waiter in released:
            waiter.verdict = self._desk.alone(waiter)
        return released

    def release_all(self) -> list[Waiter]:
        """Nobody waits any more."""
        return [waiter for account in list(self._lines) for waiter in self.release(account)]


def _is_settled(account: Account, cost: int, now_ns: int) -> bool:
    """Whether what is known of the account decides such a request without another ask."""
    return account.covers(cost, now_ns) or now_ns < account.refused_until_ns(cost)


def deliver(woken: Iterable[Waiter]) -> None:
    """Let requests go on, those of an event loop in their own loop. Without the lock held."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Waiter]] = {}
    for waiter in woken:
        if waiter.loop is None:
            waiter.wake()
        else:
            by_loop.setdefault(waiter.loop, []).append(waiter)
    for loop, waiters in by_loop.items():
        try:
            loop.call_soon_threadsafe(_wake_all, waiters)
        except RuntimeError:
            log.debug("a loop closed while %d of its requests waited", len(waiters))


def _wake_all(waiters: Sequence[Waiter]) -> None:
    for waiter in waiters:
        waiter.wake()
