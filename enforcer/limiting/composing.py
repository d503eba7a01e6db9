"""How one asker words its asks: their rising numbers, the calendar of a quota, and the owner's time as far as known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from enforcer.clock import Clock
from enforcer.core.account import Account
from enforcer.core.owner_clock import OwnerClockEstimate
from enforcer.limiting.reporting import Reporting
from enforcer.messages import Answer, Ask, AskFault
from enforcer.policies.calendar import turns


class Composing:
    """Of one asker; called with the lock held."""

    def __init__(
        self,
        clock: Clock,
        reporting: Reporting,
        *,
        member: str,
        numbers: Iterator[int],
        jitter: Callable[[], float],
        owner_clock: OwnerClockEstimate,
    ) -> None:
        self._clock = clock
        self._reporting = reporting
        self._member = member
        self._jitter = jitter
        # Of all askers of a copy: a bucket that comes to another node must not take a new ask for an old one.
        self._numbers = numbers
        # Of all askers of a copy, too: one answer that came fast says more than many that came slowly.
        self._owner_clock = owner_clock
        self._owner_ahead_us = 0

    def ask(self, account: Account, waiting: Sequence[int], now_ns: int, *, ahead: bool) -> Ask:
        """The next ask about this account; totals that became final by it are told to the sink."""
        due = account.due
        # The owner's calendar counts, not this copy's: a clock that is a day off must not find a quota of yesterday.
        starts = turns(due.per, due.zone, self._clock.unix_us() + self._owner_ahead_us) if due.per is not None else ()
        ask = account.ask(
            ask_no=next(self._numbers),
            member=self._member,
            now_ns=now_ns,
            jitter=self._jitter(),
            waiting=waiting,
            ahead=ahead,
            turns=starts,
        )
        self._reporting.closed(account)
        return ask

    def heard(self, owner: str, outcomes: Iterable[Answer | AskFault], *, sent_ns: int, now_ns: int) -> None:
        """Take in what an owner's outcomes say of its time; not all of them do."""
        told_us = [outcome.owner_now_us for outcome in outcomes if outcome.owner_now_us]
        if told_us:
            self._owner_ahead_us = told_us[-1] - self._clock.unix_us()
            self._owner_clock.heard(owner, told_us[len(told_us) // 2], sent_ns=sent_ns, now_ns=now_ns)
