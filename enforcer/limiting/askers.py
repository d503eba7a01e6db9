"""One asker for each owner: one that is slow or away degrades only those whose buckets it holds.

It decides nothing. Everything but starting, stepping and closing is called with the lock held.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

from enforcer.clock import Clock
from enforcer.core.account import Account
from enforcer.core.owner_clock import OwnerClockEstimate
from enforcer.core.resolution import SHADOW
from enforcer.limiting.asker import Asker
from enforcer.limiting.composing import Composing
from enforcer.limiting.lane import Lane
from enforcer.limiting.reporting import Reporting, hand
from enforcer.limiting.settling import Deadlines
from enforcer.limiting.totals import Totals
from enforcer.limiting.waiter import Waiter
from enforcer.limiting.waiting import Desk
from enforcer.owners.port import Owner, Owners
from enforcer.settings import LimiterSettings
from enforcer.sink import CostChanged, OwnerClock, Sink, WouldRefuse


class Askers:
    """Implements `Owning`.

    Attributes:
        lock: guards every account off the fast path.
        costs: requests whose cost changed after the fact: how many, tokens charged, tokens refunded.
    """

    def __init__(
        self,
        owners: Owners,
        sink: Sink,
        desk: Desk,
        *,
        member: str,
        clock: Clock,
        settings: LimiterSettings,
        accounts: Callable[[], Collection[Account]],
        forget: Callable[[Account], None],
    ) -> None:
        self.lock = threading.Lock()
        self.costs = Totals()
        self._would_refuse = Totals()
        self._owners = owners
        self._sink = sink
        self._clock = clock
        self._desk = desk
        self._member = member
        self._settings = settings
        self._accounts = accounts
        self._forget = forget
        self._numbers: Iterator[int] = itertools.count(1)
        self._owner_clock = OwnerClockEstimate()
        self._askers = {name: self._asker(name, owner) for name, owner in owners.nodes.items()}
        self._version = owners.version
        self._is_started = False

    @property
    def alone(self) -> bool:
        """Whether requests for some callers are decided without their owner."""
        return any(asker.presence.alone for asker in self._askers.values())

    def start(self) -> None:
        """Start a thread for each owner."""
        self._is_started = True
        for asker in list(self._askers.values()):
            asker.start()

    def look_again(self) -> None:
        """See whether buckets are at other nodes now, and go by that. Without the lock held; as slow as an ask."""
        if self._owners.refresh() or self._owners.version != self._version:
            with self.lock:
                self._replace()

    def place_anew(self) -> None:
        """Go by a placing that the policy has changed. With the lock held."""
        if self._owners.version != self._version:
            self._replace()

    def step(self) -> None:
        """One round of each."""
        for asker in list(self._askers.values()):
            asker.step()

    def open(self, account: Account, now_ns: int) -> None:
        """Take charge of a new account."""
        account.node = self._place(account)
        self._askers[account.node].tending.watch_age(account, now_ns)

    def is_away(self, account: Account, now_ns: int) -> bool:
        """See `Owning.is_away`."""
        return self._askers[account.node].presence.is_away(now_ns) or now_ns < account.backoff.until_ns

    def line_up(self, waiter: Waiter, accounts: Sequence[Account]) -> None:
        """Have a request wait for the owners of these accounts."""
        for account in accounts:
            self._askers[account.node].line_up(waiter, account)

    def overdue(self, waiter: Waiter) -> None:
        """A request has waited its whole timeout; what it still waits for may be away."""
        for account in waiter.lined:
            self._askers[account.node].presence.overdue(waiter.since_ns)

    def ask_ahead(self, account: Account) -> None:
        """See `Owning.ask_ahead`."""
        asker = self._askers[account.node]
        if account.upcoming is None and not (asker.presence.alone or account.evicted or account.backoff.until_ns):
            account.current.low = 0
            asker.enqueue(account)

    def adjust(self, account: Account, delta: int, grant_id: int) -> bool:
        """Charge tokens after the fact, or give them back; what the grant in hand cannot settle is asked for.

        Returns:
            Whether they count: what was spent of a quota in a period that is over cannot be given back.
        """
        now_ns = self._clock.monotonic_ns()
        if delta < 0 and not account.takes_back(grant_id, now_ns):
            return False
        account.adjust(delta)
        if account.owed > 0:
            self._askers[account.node].settle_debt(account, now_ns)
        return True

    def ask_in_shadow(self, lane: Lane, account: Account, cost: int) -> None:
        """See `Owning.ask_in_shadow`."""
        now_ns = self._clock.monotonic_ns()
        if cost > account.plan.burst or now_ns < account.refused_until_ns(cost):
            account.refuse(cost)
            self._count_shadow(lane, account, cost)
        elif account.covers(cost, now_ns):
            account.spend(cost, now_ns)
        elif not self.is_away(account, now_ns):
            self.line_up(Waiter(lane, cost, None, in_shadow=account), (account,))

    def shadow_answered(self, waiter: Waiter, now_ns: int) -> None:
        """The owner has answered for a limit in shadow mode."""
        account = waiter.in_shadow
        if account is not None and account.spend(waiter.cost, now_ns) < 0:
            account.refuse(waiter.cost)
            self._count_shadow(waiter.lane, account, waiter.cost)

    def tell(self, *, everything: bool = False) -> None:
        """Tell the sink the running totals that changed, if it is time, and the owner's time if that moved."""
        now_ns, at_us = self._clock.monotonic_ns(), self._clock.unix_us()
        for (caller, scope, _, _), (requests, charged, refunded) in self.costs.due(now_ns, everything=everything):
            hand(self._sink.event, CostChanged(caller, scope, requests, charged, refunded, at_us))
        for key, (requests, cost) in self._would_refuse.due(now_ns, everything=everything):
            hand(self._sink.event, WouldRefuse(*key, requests, cost, at_us))
        if (clock := self._owner_clock.due(now_ns=now_ns, unix_us=at_us)) is not None:
            hand(self._sink.event, OwnerClock(*clock, at_us))

    def close(self, accounts: Callable[[], Sequence[Account]], deadlines: Deadlines) -> None:
        """Close each; they share the time. See `Asker.close`."""
        askers = dict(self._askers)
        for asker in askers.values():
            asker.end()
        for name, asker in askers.items():
            asker.close(partial(_accounts_at, accounts, name), deadlines)
        with self.lock:
            self.tell(everything=True)

    def _count_shadow(self, lane: Lane, account: Account, cost: int) -> None:
        terms = account.due.terms
        self._would_refuse.count(
            (lane.caller, lane.scope, terms.limit.removesuffix(SHADOW), terms.policy_version), 1, cost
        )

    def _place(self, account: Account) -> str:
        """Where its bucket is now; at a node that has just come there is an asker then, too."""
        node = self._owners.place(account.caller, account.limit)
        if node not in self._askers:
            # The owners know of it before `look_again` could have the lock.
            self._meet(self._owners.nodes)
        return node

    def _meet(self, nodes: Mapping[str, Owner]) -> None:
        for name, owner in nodes.items():
            if name not in self._askers:
                self._askers[name] = asker = self._asker(name, owner)
                if self._is_started:
                    asker.start()

    def _replace(self) -> None:
        self._version = self._owners.version
        self._meet(self._owners.nodes)
        now_ns = self._clock.monotonic_ns()
        for account in self._accounts():
            node = self._place(account)
            if node != account.node:
                waiting = self._askers[account.node].hand_over(account)
                account.node = node
                account.moves += 1
                account.queued = account.watched = account.chased = False
                account.backoff.mended()
                tending = self._askers[node].tending
                tending.watch_age(account, now_ns)
                tending.watch_idle(account, now_ns)
                tending.watch_debt(account, now_ns)
                for waiter in waiting:
                    self._askers[node].line_up(waiter, account)
        # Read anew: what a thread has learnt meanwhile is placed by already, and looked at again after this.
        in_use = {*self._owners.nodes, *(account.node for account in self._accounts())}
        for name in [name for name in self._askers if name not in in_use]:
            self._askers.pop(name).retire()

    def _asker(self, name: str, owner: Owner) -> Asker:
        reporting = Reporting(self._sink, self._clock, member=self._member)
        composing = Composing(
            self._clock,
            reporting,
            member=self._member,
            numbers=self._numbers,
            jitter=self._settings.jitter,
            owner_clock=self._owner_clock,
        )
        asker = Asker(
            owner,
            self._desk,
            reporting,
            composing,
            name=name,
            lock=self.lock,
            clock=self._clock,
            settings=self._settings,
        )
        asker.all_here = lambda: _at(self._accounts(), name)
        asker.tending.forget = self._forget
        asker.tell = self.tell
        asker.look_again = self.look_again
        return asker


def _accounts_at(accounts: Callable[[], Collection[Account]], node: str) -> list[Account]:
    return _at(accounts(), node)


def _at(accounts: Collection[Account], node: str) -> list[Account]:
    return [account for account in accounts if account.node == node]
