"""The one place in a copy that talks to the owner: a background thread that serves threads and event loops alike.

All asks that are pending go out in one round trip, one per bucket; it settles what falls idle and keeps the breaker.
It never decides about a request that can be decided without the owner.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence

from enforcer.clock import Clock
from enforcer.core.account import Account
from enforcer.core.breaker import Breaker, BreakerState
from enforcer.errors import OwnerUnavailable
from enforcer.lane import Decisions, Waiter
from enforcer.owner import Owner
from enforcer.settings import LimiterSettings
from enforcer.sink import DegradeChanged, GrantIssued, GrantSettled, Sink
from enforcer.tending import Tending
from enforcer.types import Answer, Ask, SettleCause, Settlement
from enforcer.waiting import Lines, deliver

log = logging.getLogger("enforcer")

_BATCH = 256
_TICK_S = 0.25
_SOON_S = 0.001
_RTT_WEIGHT = 0.1


class Asker:
    """Coalesces, sends, delivers, settles.

    `lock` guards every account off the fast path. `alone` is True while decisions are made without the owner.
    """

    def __init__(
        self, owner: Owner, sink: Sink, decisions: Decisions, *, member: str, clock: Clock, settings: LimiterSettings
    ) -> None:
        self.lock = threading.Lock()
        self.alone = False
        self.tending = Tending(settings)
        self._owner = owner
        self._sink = sink
        self._decisions = decisions
        self._member = member
        self._clock = clock
        self._settings = settings
        self._breaker = Breaker()
        self._pending: queue.SimpleQueue[Account | None] = queue.SimpleQueue()
        self._lines = Lines(decisions)
        # One round at a time: an account with two asks under way would disown the grant of the first by the second.
        self._round = threading.Lock()
        self._ask_no = 0
        self._rtt_s = 0.0
        self._stopping = False
        self._thread: threading.Thread | None = None

    def enqueue(self, account: Account) -> None:
        """Have the owner asked for this account in the next round. With the lock held."""
        if not account.queued:
            account.queued = True
            self._pending.put(account)

    def line_up(self, waiter: Waiter) -> None:
        """Have a request wait for the next answer. With the lock held."""
        self._lines.add(waiter)
        self.enqueue(waiter.lane.account)

    def start(self) -> None:
        """Start the thread; its first act is to see whether the owner is there."""
        self._thread = threading.Thread(target=self._run, name="enforcer-asker", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """End the thread; returns whether it ended within `timeout_s`."""
        self._stopping = True
        self._pending.put(None)
        if self._thread is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def step(self, first: Account | None = None) -> None:
        """One round: probe if that is due, then ask for all that is pending, or due to be settled."""
        with self._round:
            now_ns = self._clock.monotonic_ns()
            if self._breaker.take_probe(now_ns):
                self.probe()
            with self.lock:
                batch = self._drain(first)
                if self.alone:
                    return
                self.tending.forget_old(now_ns, self._lines.accounts)
                idle = self.tending.fallen_idle(now_ns, busy=set(batch), room=_BATCH)
                asks = [self._compose(account, now_ns, ahead=True) for account in batch]
                asks += [self._compose(account, now_ns, ahead=False) for account in idle]
            if asks:
                self._exchange([*batch, *idle], asks)

    def probe(self) -> None:
        """See whether the owner would answer an ask, without making a request wait for it."""
        try:
            self._owner.probe()
        except OwnerUnavailable as error:
            self._lost(error.cause)
        except Exception as error:  # whatever is wrong with the owner, it cannot be asked
            log.exception("the owner's probe failed in an unexpected way", extra={"action": "asker_error"})
            self._lost(repr(error))
        else:
            if self._breaker.proved():
                self._found()

    def settle_all(self, accounts: Sequence[Account], deadline_ns: int) -> None:
        """State all totals as final; what the owner does not hear, it credits back when it expires."""
        with self.lock:
            for account in accounts:
                account.close_all(SettleCause.CLOSE, self._clock.monotonic_ns())
                self.report_closed(account)
            owing = [account for account in accounts if account.finals]
        for start in range(0, len(owing), _BATCH):
            now_ns = self._clock.monotonic_ns()
            chunk = owing[start : start + _BATCH]
            asks = [self._compose(account, now_ns, ahead=False) for account in chunk]
            try:
                self._owner.ask(asks)
            except OwnerUnavailable as error:
                cause = error.cause
            else:
                if now_ns < deadline_ns:
                    continue
                cause = "no time left"
            unheard = len(owing) - start
            log.warning("last totals of %d callers not settled: %s", unheard, cause, extra={"action": "settle_failed"})
            return

    def report_closed(self, account: Account) -> None:
        """Tell the sink of totals that became final."""
        for total in account.take_unreported():
            fact = GrantSettled(account.caller, account.limit, self._member, total, self._clock.unix_us())
            self._sink.grant_settled(fact)

    def _run(self) -> None:
        self._guarded(self.probe)
        while not self._stopping:
            try:
                first = self._pending.get(timeout=self._patience_s())
            except queue.Empty:
                first = None
            self._guarded(self.step, first)

    def _guarded(self, act: Callable[..., None], *arguments: Account | None) -> None:
        try:
            act(*arguments)
        except Exception:  # without this thread every request would wait its whole timeout
            log.exception("the asker met an unexpected error and goes on", extra={"action": "asker_error"})

    def _patience_s(self) -> float:
        now_ns = self._clock.monotonic_ns()
        if self._breaker.state is BreakerState.OPEN:
            return min(_TICK_S, max(_SOON_S, (self._breaker.probe_at_ns - now_ns) / 1e9))
        return _SOON_S if self.tending.is_behind(now_ns) else _TICK_S

    def _drain(self, first: Account | None) -> list[Account]:
        """Accounts that are pending; each may be queued again from now on."""
        batch: list[Account] = []
        account = first
        while True:
            if account is not None:
                account.queued = False
                if not account.evicted:
                    batch.append(account)
            if len(batch) >= _BATCH:
                return batch
            try:
                account = self._pending.get_nowait()
            except queue.Empty:
                return batch

    def _compose(self, account: Account, now_ns: int, *, ahead: bool) -> Ask:
        self._ask_no += 1
        ask = account.ask(
            ask_no=self._ask_no,
            member=self._member,
            now_ns=now_ns,
            jitter=self._settings.jitter(),
            waiting=self._lines.count_in(account),
            ahead=ahead,
        )
        self.report_closed(account)
        return ask

    def _exchange(self, batch: Sequence[Account], asks: Sequence[Ask]) -> None:
        sent_ns = self._clock.monotonic_ns()
        try:
            answers = self._owner.ask(asks)
        except OwnerUnavailable as error:
            self._lost(error.cause)
            return
        except Exception as error:  # whatever is wrong with the owner, it cannot be asked
            log.exception("the owner failed in an unexpected way", extra={"action": "asker_error"})
            self._lost(repr(error))
            return
        if len(answers) != len(asks):
            self._lost(f"{len(asks)} asks got {len(answers)} answers")
            return
        self._breaker.answered()
        now_ns = self._clock.monotonic_ns()
        self._rtt_s += ((now_ns - sent_ns) / 1e9 - self._rtt_s) * _RTT_WEIGHT
        woken: list[Waiter] = []
        with self.lock:
            ahead_on = self._rtt_s * 1e3 >= self._settings.ask_ahead_above_ms
            for account, ask, answer in zip(batch, asks, answers, strict=True):
                account.answered(ask, answer, sent_ns=sent_ns, now_ns=now_ns, ahead_on=ahead_on)
                woken += self._lines.serve(account, now_ns)
                if account in self._lines.accounts:
                    self.enqueue(account)
                if answer.grant is not None:
                    self.tending.watch_idle(account, now_ns)
        deliver(woken)
        for account, answer in zip(batch, answers, strict=True):
            self._report(account, answer)

    def _lost(self, cause: str) -> None:
        """Decide alone from now on; whoever waits need not wait longer."""
        opened = self._breaker.failed(self._clock.monotonic_ns(), self._settings.jitter())
        with self.lock:
            self.alone = True
            released = self._lines.release()
        deliver(released)
        if opened:
            name = self._settings.owner_name
            log.warning("deciding without the owner %s: %s", name, cause, extra={"action": "degrade_entered"})
            self._sink.degrade_changed(DegradeChanged(name, True, cause, self._clock.unix_us()))

    def _found(self) -> None:
        with self.lock:
            self.alone = False
        name, cause = self._settings.owner_name, "the owner answers again"
        log.warning("%s: %s", name, cause, extra={"action": "degrade_left"})
        self._sink.degrade_changed(DegradeChanged(name, False, cause, self._clock.unix_us()))

    def _report(self, account: Account, answer: Answer) -> None:
        if answer.grant is not None:
            version = self._decisions.policy_version
            self._sink.grant_issued(GrantIssued(account.caller, account.limit, version, answer.grant, answer.tokens))
        for credit in answer.credited:
            total = Settlement(credit.grant_id, credit.spent, False, SettleCause.CREDITED)
            fact = GrantSettled(account.caller, account.limit, credit.member, total, answer.owner_now_us)
            self._sink.grant_settled(fact)
