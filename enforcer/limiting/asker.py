"""The one place in a copy that talks to one owner: a background thread that serves threads and event loops alike.

All asks that are pending go out in one round trip, one per bucket; it settles what falls idle and keeps the breaker.
It never decides about a request that can be decided without the owner.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Collection, Sequence

from enforcer.clock import Clock
from enforcer.core.account import Account
from enforcer.core.breaker import Breaker, BreakerState
from enforcer.limiting.asker_thread import AskerThread
from enforcer.limiting.composing import Composing
from enforcer.limiting.presence import Presence
from enforcer.limiting.reporting import Reporting
from enforcer.limiting.settling import BATCH, Deadlines, settle_last, warn_not_settled
from enforcer.limiting.sound import ask_each, failure_cause, why_away
from enforcer.limiting.tending import Tending
from enforcer.limiting.waiter import Waiter
from enforcer.limiting.waiting import Desk, Lines, deliver
from enforcer.messages import Answer, Ask, AskFault, Moved, SettleCause
from enforcer.owners.port import Owner
from enforcer.settings import LimiterSettings

log = logging.getLogger("enforcer")

_TICK_S = 0.25
_SOON_S = 0.001
_RTT_WEIGHT = 0.1
#: A bucket that nobody serves at this moment is a failover: it is over in seconds.
_MOVING_NS = 1_000_000_000


class Asker(AskerThread):
    """Coalesces, sends, delivers, settles.

    `lock` guards every account off the fast path, and what the sink is told: nothing once the copy is closed. All
    askers of a limiter share it.

    Attributes:
        presence: whether the owner is there.
        all_here: all accounts whose bucket this owner holds; called with the lock held.
        tell: called in every round, with the lock held: what is to be said of the whole copy.
        look_again: called first and after a failure, without the lock: which owner holds what may have changed.
    """

    def __init__(
        self,
        owner: Owner,
        desk: Desk,
        reporting: Reporting,
        composing: Composing,
        *,
        name: str,
        lock: threading.Lock,
        clock: Clock,
        settings: LimiterSettings,
    ) -> None:
        super().__init__()
        self.presence = Presence(reporting, name=name)
        self.tending = Tending(settings, node=name)
        self.all_here: Callable[[], Collection[Account]] = tuple
        self.tell: Callable[[], object] = tuple
        self.look_again: Callable[[], object] = tuple
        self._lock = lock
        self._owner = owner
        self._name = name
        self._reporting = reporting
        self._composing = composing
        self._clock = clock
        self._settings = settings
        self._breaker = Breaker()
        self._lines = Lines(desk)
        # One round at a time: an account with two asks under way would disown the grant of the first by the second.
        self._round = threading.Lock()
        self._rtt_s = 0.0
        self._over = self._has_looked = False

    def enqueue(self, account: Account) -> None:
        """Have the owner asked for this account in the next round. With the lock held."""
        if not account.queued:
            account.queued = True
            self._pending.put(account)

    def line_up(self, waiter: Waiter, account: Account) -> None:
        """Have a request wait for this account's next answer. With the lock held."""
        self._lines.add(waiter, account)
        self.enqueue(account)

    def hand_over(self, account: Account) -> list[Waiter]:
        """Who waits for this account, which is another asker's from now on. With the lock held."""
        return self._lines.take(account)

    def settle_debt(self, account: Account, now_ns: int) -> None:
        """Have the owner asked for what was charged after the fact and is not paid yet. With the lock held."""
        self.tending.watch_debt(account, now_ns)
        if not self.presence.alone:
            self.enqueue(account)

    def retire(self) -> None:
        """The owner is no longer one: nobody waits for it any more. With the lock held."""
        self._over = True
        self.presence.replaced()
        self.end()
        deliver(self._lines.release_all())
        self._owner.close()

    def step(self, first: Account | None = None) -> None:
        """One round: probe if that is due, then ask for all that is pending, or due to be settled."""
        with self._round:
            now_ns = self._clock.monotonic_ns()
            # One that is silent and not being asked is not lost: it is to be heard again.
            if probed := self._breaker.take_probe(now_ns) or self.presence.is_silent:
                self.probe()
            with self._lock:
                # Read anew: whoever lined up during the probe did so at a later time.
                now_ns = self._clock.monotonic_ns()
                if not self._over:
                    self.tell()
                batch = self._drain(first, now_ns)
                room = BATCH - len(batch)
                self.tending.forget_old(now_ns, self._lines.accounts, alone=self.presence.alone)
                if self._breaker.state is not BreakerState.CLOSED:
                    return
                quiet = self.tending.unannounced(batch, room=room)
                quiet += self.tending.in_debt(now_ns, busy={*batch, *quiet}, room=room - len(quiet))
                quiet += self.tending.fallen_idle(now_ns, busy={*batch, *quiet}, room=room - len(quiet))
                asks = [self._compose(account, now_ns, ahead=True) for account in batch]
                asks += [self._compose(account, now_ns, ahead=False) for account in quiet]
            if asks:
                self._exchange([*batch, *quiet], asks, probed=probed)

    def probe(self) -> None:
        """See whether the owner would answer an ask, without making a request wait for it."""
        if not self._has_looked:
            # Before the first word: a service behind sentinels has no address yet, a cluster's seeds are not all of it.
            self._has_looked = True
            self.look_again()
        cause = why_away(self._owner)
        if cause is not None:
            self._lost(cause)
            return
        found = self._breaker.proved()
        with self._lock:
            if self._over:
                return
            self.presence.heard(self._clock.monotonic_ns())
            if found:
                self.tending.announce(self.all_here())

    def close(self, accounts: Callable[[], Sequence[Account]], deadlines: Deadlines) -> None:
        """Decide about all who wait, state all totals as final, and leave owner and sink alone from then on.

        Args:
            accounts: all whose bucket this owner holds, called when nobody waits any more; the limiter opens no new
                ones meanwhile.
            deadlines: by the copy's monotonic clock.
        """
        ended = self._has_ended(max(0.0, (deadlines.join_ns - self._clock.monotonic_ns()) / 1e9))
        if ended and len(self._lines) > 0:
            self._guarded(self.step)
        with self._lock:
            released = self._lines.release_all()
            self._over = True
            now_ns = self._clock.monotonic_ns()
            owing = [account for account in accounts() if account.close_all(SettleCause.CLOSE, now_ns)]
            for account in owing:
                self._reporting.closed(account)
        deliver(released)
        if not ended:
            warn_not_settled(len(owing), f"the owner {self._name} still answers an earlier ask")
            return
        with self._round:
            settle_last(self._owner, owing, self._compose_last, clock=self._clock, deadline_ns=deadlines.settle_ns)

    def _patience_s(self) -> float:
        now_ns = self._clock.monotonic_ns()
        patience_s = _SOON_S if self.tending.is_behind(now_ns, alone=self.presence.alone) else _TICK_S
        if self._breaker.state is BreakerState.OPEN:
            return min(patience_s, max(_SOON_S, (self._breaker.probe_at_ns - now_ns) / 1e9))
        return patience_s

    def _drain(self, first: Account | None, now_ns: int) -> list[Account]:
        """Accounts that are pending; each may be queued again from now on."""
        batch: list[Account] = []
        account = first
        # What is due besides has its part of a round, however many requests wait.
        room = BATCH - BATCH // 4 if self.tending.is_behind(now_ns, alone=self.presence.alone) else BATCH
        while True:
            # One whose bucket went elsewhere and came back stands here twice.
            if account is not None and account.queued:
                account.queued = False
                is_here = account.node == self._name and not account.evicted
                if is_here and now_ns >= account.backoff.until_ns:
                    batch.append(account)
            if len(batch) >= room:
                return batch
            try:
                account = self._pending.get_nowait()
            except queue.Empty:
                return batch

    def _compose(self, account: Account, now_ns: int, *, ahead: bool) -> Ask:
        return self._composing.ask(account, self._lines.count_in(account), now_ns, ahead=ahead)

    def _compose_last(self, account: Account) -> Ask:
        with self._lock:
            return self._compose(account, self._clock.monotonic_ns(), ahead=False)

    def _exchange(self, batch: Sequence[Account], asks: Sequence[Ask], *, probed: bool) -> None:
        sent_ns = self._clock.monotonic_ns()
        try:
            outcomes = ask_each(self._owner, asks)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the owner, it cannot be asked
            self._lost(failure_cause(error))
            return
        if len(outcomes) != len(asks):
            self._lost(f"{len(asks)} asks got {len(outcomes)} answers")
            return
        if any(isinstance(outcome, Answer) for outcome in outcomes):
            self._breaker.answered()
        elif not probed and (cause := why_away(self._owner)) is not None:
            # Where no bucket can be read it is not the buckets that are bad.
            self._lost(cause)
            return
        now_ns = self._clock.monotonic_ns()
        self._rtt_s += ((now_ns - sent_ns) / 1e9 - self._rtt_s) * _RTT_WEIGHT
        woken: list[Waiter] = []
        with self._lock:
            if self._over:
                return
            self.presence.heard(now_ns)
            self._composing.heard(self._name, outcomes, sent_ns=sent_ns, now_ns=now_ns)
            for account, ask, outcome in zip(batch, asks, outcomes, strict=True):
                if account.node != self._name:
                    # Placed elsewhere meanwhile, and perhaps asked for there: that ask disowns what this one granted.
                    continue
                if isinstance(outcome, AskFault):
                    woken += self._take_fault(account, outcome, now_ns)
                else:
                    woken += self._take_answer(account, ask, outcome, sent_ns=sent_ns, now_ns=now_ns)
            adopted = [account for account, outcome in zip(batch, outcomes, strict=True) if _adopted(outcome)]
            if self.tending.is_new_loss(adopted):
                self.tending.announce(self.all_here())
            else:
                self.tending.announced(batch)
        deliver(woken)
        if any(isinstance(outcome, Moved) or (isinstance(outcome, Answer) and outcome.moved) for outcome in outcomes):
            self.look_again()

    def _take_answer(self, account: Account, ask: Ask, answer: Answer, *, sent_ns: int, now_ns: int) -> list[Waiter]:
        if account.backoff.mended():
            log.warning("the owner answers for %s again", account, extra={"action": "bucket_mended"})
        ahead_on = self._rtt_s * 1e3 >= self._settings.ask_ahead_above_ms
        account.answered(ask, answer, sent_ns=sent_ns, now_ns=now_ns, ahead_on=ahead_on)
        account.level()
        woken = self._lines.serve(account, now_ns)
        if account in self._lines.accounts:
            self.enqueue(account)
        if answer.grant is not None:
            self.tending.watch_idle(account, now_ns)
        self.tending.watch_debt(account, now_ns)
        self._reporting.answered(account, answer, now_ns)
        return woken

    def _take_fault(self, account: Account, fault: AskFault, now_ns: int) -> list[Waiter]:
        """Decide about this caller alone for a while, and about all others as ever."""
        longest = {"longest_ns": _MOVING_NS} if isinstance(fault, Moved) else {}
        if account.backoff.faulted(now_ns, self._settings.jitter(), **longest):
            extra = {"action": "bucket_faulted"}
            log.warning("deciding about %s alone, the owner cannot read it: %s", account, fault.cause, extra=extra)
        return self._lines.release(account)

    def _lost(self, cause: str) -> None:
        """Decide alone from now on; whoever waits need not wait longer."""
        self._breaker.failed(self._clock.monotonic_ns(), self._settings.jitter())
        with self._lock:
            if self._over:
                return
            self.presence.lost(cause)
            released = self._lines.release_all()
        deliver(released)
        self.look_again()


def _adopted(outcome: Answer | AskFault) -> bool:
    return isinstance(outcome, Answer) and outcome.adopted > 0
