"""The requests that wait for the owner, by account; who of them an answer decides, and how they are woken.

It never asks the owner, and never makes a request wait: the limiter lines up, the asker serves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence

from enforcer.core.account import Account
from enforcer.limiting.lane import Decisions, Waiter
from enforcer.types import Source, Verdict

log = logging.getLogger("enforcer")


class Lines:
    """One line for each account that is waited for, oldest first. Kept under the asker's lock."""

    def __init__(self, decisions: Decisions, decide_alone: Callable[[Waiter], Verdict]) -> None:
        self._decisions = decisions
        self._decide_alone = decide_alone
        self._lines: dict[Account, list[Waiter]] = {}

    @property
    def accounts(self) -> Collection[Account]:
        """Those that are waited for."""
        return self._lines.keys()

    def __len__(self) -> int:
        """How many requests wait."""
        return sum(len(line) for line in list(self._lines.values()))

    def add(self, waiter: Waiter) -> None:
        """Have a request wait for its account's next answer."""
        self._lines.setdefault(waiter.lane.account, []).append(waiter)

    def count_in(self, account: Account) -> list[int]:
        """Costs of the requests that the ask now being composed is for."""
        line = [waiter for waiter in self._lines.get(account, ()) if not waiter.gone]
        for waiter in line:
            waiter.counted = True
        return [waiter.cost for waiter in line]

    def serve(self, account: Account, now_ns: int) -> list[Waiter]:
        """Decide by the answer just taken in; one that is too dear does not hold up the others.

        Returns:
            Whom to wake. Those whom no ask has counted yet, and who cannot be served without one, stay in line.
        """
        decided: list[Waiter] = []
        staying: list[Waiter] = []
        for waiter in self._lines.pop(account, ()):
            if waiter.gone:
                continue
            cost = waiter.cost
            left = account.spend(cost, now_ns)
            if left >= 0:
                waiter.verdict = self._decisions.admit(
                    waiter.lane, cost=cost, left=left, now_ns=now_ns, source=Source.SHARED
                )
            elif waiter.counted or now_ns < account.refused_until_ns(cost):
                waiter.verdict = self._decisions.refuse(waiter.lane, cost=cost, now_ns=now_ns, source=Source.SHARED)
            else:
                staying.append(waiter)
                continue
            decided.append(waiter)
        if staying:
            self._lines[account] = staying
        return decided

    def release(self, account: Account) -> list[Waiter]:
        """Nobody waits for this account any more: all are decided without the owner; returns whom to wake.

        Here and not where they go on: a thread that wakes late would decide after the record was closed.
        """
        released = [waiter for waiter in self._lines.pop(account, ()) if not waiter.gone]
        for waiter in released:
            waiter.verdict = self._decide_alone(waiter)
        return released

    def release_all(self) -> list[Waiter]:
        """Nobody waits any more."""
        return [waiter for account in list(self._lines) for waiter in self.release(account)]


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
