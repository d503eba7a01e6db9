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
from enforcer.limiting.lane import Decisions, Waiter
from enforcer.limiting.settling import BATCH, failure_cause, settle_last
from enforcer.limiting.tending import Tending
from enforcer.limiting.waiting import Lines, deliver
from enforcer.owners.port import Owner
from enforcer.settings import LimiterSettings
from enforcer.sink import DegradeChanged, GrantIssued, GrantSettled, Sink
from enforcer.types import Answer, Ask, AskFault, SettleCause, Settlement, Verdict

log = logging.getLogger("enforcer")

_TICK_S = 0.25
_SOON_S = 0.001
_RTT_WEIGHT = 0.1
_BACK = "the owner answers again"


class Asker:
    """Coalesces, sends, delivers, settles.

    `lock` guards every account off the fast path, and what the sink is told: nothing once the copy is closed.
    `alone` is True while decisions are made without the owner.
    """

    def __init__(
        self,
        owner: Owner,
        sink: Sink,
        decisions: Decisions,
        decide_alone: Callable[[Waiter], Verdict],
        *,
        member: str,
        clock: Clock,
        settings: LimiterSettings,
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
        self._lines = Lines(decisions, decide_alone)
        # One round at a time: an account with two asks under way would disown the grant of the first by the second.
        self._round = threading.Lock()
        self._ask_no = 0
        self._rtt_s = 0.0
        self._stopping = False
        self._over = False
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
            if probed := self._breaker.take_probe(now_ns):
                self.probe()
            with self.lock:
                # Read anew: whoever lined up during the probe did so at a later time.
                now_ns = self._clock.monotonic_ns()
                batch = self._drain(first, now_ns)
                self.tending.forget_old(now_ns, self._lines.accounts, alone=self.alone)
                if self.alone:
                    return
                idle = self.tending.fallen_idle(now_ns, busy=set(batch), room=BATCH)
                asks = [self._compose(account, now_ns, ahead=True) for account in batch]
                asks += [self._compose(account, now_ns, ahead=False) for account in idle]
            if asks:
                self._exchange([*batch, *idle], asks, probed=probed)

    def probe(self) -> None:
        """See whether the owner would answer an ask, without making a request wait for it."""
        cause = self._why_away()
        if cause is not None:
            self._lost(cause)
        elif self._breaker.proved():
            self._found()

    def _why_away(self) -> str | None:
        try:
            self._owner.probe()
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the owner, it cannot be asked
            return failure_cause(error)
        return None

    def close(self, accounts: Callable[[], Sequence[Account]], timeout_s: float, deadline_ns: int) -> None:
        """Decide about all who wait, state all totals as final, and leave owner and sink alone from then on.

        Args:
            accounts: all that there are, called when nobody waits any more; the limiter opens no new ones meanwhile.
            timeout_s: how long to wait for the thread's round to end.
            deadline_ns: until when to state totals, by the copy's monotonic clock.
        """
        ended = self.stop(timeout_s)
        if ended and len(self._lines) > 0:
            self._guarded(self.step)
        with self.lock:
            released = self._lines.release_all()
            self._over = True
            now_ns = self._clock.monotonic_ns()
            owing = [account for account in accounts() if account.close_all(SettleCause.CLOSE, now_ns)]
            for account in owing:
                self._report_closed(account)
        deliver(released)
        if ended:
            with self._round:
                settle_last(self._owner, owing, self._compose_last, clock=self._clock, deadline_ns=deadline_ns)

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
        patience_s = _SOON_S if self.tending.is_behind(now_ns, alone=self.alone) else _TICK_S
        if self._breaker.state is BreakerState.OPEN:
            return min(patience_s, max(_SOON_S, (self._breaker.probe_at_ns - now_ns) / 1e9))
        return patience_s

    def _drain(self, first: Account | None, now_ns: int) -> list[Account]:
        """Accounts that are pending; each may be queued again from now on."""
        batch: list[Account] = []
        account = first
        while True:
            if account is not None:
                account.queued = False
                if not account.evicted and now_ns >= account.retry_at_ns:
                    batch.append(account)
            if len(batch) >= BATCH:
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
        self._report_closed(account)
        return ask

    def _compose_last(self, account: Account) -> Ask:
        with self.lock:
            return self._compose(account, self._clock.monotonic_ns(), ahead=False)

    def _exchange(self, batch: Sequence[Account], asks: Sequence[Ask], *, probed: bool) -> None:
        sent_ns = self._clock.monotonic_ns()
        try:
            outcomes = self._owner.ask(asks)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the owner, it cannot be asked
            self._lost(failure_cause(error))
            return
        if len(outcomes) != len(asks):
            self._lost(f"{len(asks)} asks got {len(outcomes)} answers")
            return
        if any(isinstance(outcome, Answer) for outcome in outcomes):
            self._breaker.answered()
        elif not probed and (cause := self._why_away()) is not None:
            # Where no bucket can be read it is not the buckets that are bad.
            self._lost(cause)
            return
        now_ns = self._clock.monotonic_ns()
        self._rtt_s += ((now_ns - sent_ns) / 1e9 - self._rtt_s) * _RTT_WEIGHT
        woken: list[Waiter] = []
        with self.lock:
            if self._over:
                return
            for account, ask, outcome in zip(batch, asks, outcomes, strict=True):
                if isinstance(outcome, AskFault):
                    woken += self._take_fault(account, outcome, now_ns)
                else:
                    woken += self._take_answer(account, ask, outcome, sent_ns=sent_ns, now_ns=now_ns)
        deliver(woken)

    def _take_answer(self, account: Account, ask: Ask, answer: Answer, *, sent_ns: int, now_ns: int) -> list[Waiter]:
        if account.mended():
            log.warning("the owner answers for %s again", account, extra={"action": "bucket_mended"})
        ahead_on = self._rtt_s * 1e3 >= self._settings.ask_ahead_above_ms
        account.answered(ask, answer, sent_ns=sent_ns, now_ns=now_ns, ahead_on=ahead_on)
        woken = self._lines.serve(account, now_ns)
        if account in self._lines.accounts:
            self.enqueue(account)
        if answer.grant is not None:
            self.tending.watch_idle(account, now_ns)
        self._report(account, answer)
        return woken

    def _take_fault(self, account: Account, fault: AskFault, now_ns: int) -> list[Waiter]:
        """Decide about this caller alone for a while, and about all others as ever."""
        if account.faulted(now_ns, self._settings.jitter()):
            extra = {"action": "bucket_faulted"}
            log.warning("deciding about %s alone, the owner cannot read it: %s", account, fault.cause, extra=extra)
        return self._lines.release(account)

    def _lost(self, cause: str) -> None:
        """Decide alone from now on; whoever waits need not wait longer."""
        opened = self._breaker.failed(self._clock.monotonic_ns(), self._settings.jitter())
        with self.lock:
            if self._over:
                return
            self.alone = True
            released = self._lines.release_all()
            if opened:
                self._tell(entered=True, cause=cause)
        deliver(released)
        if opened:
            name = self._settings.owner_name
            log.warning("deciding without the owner %s: %s", name, cause, extra={"action": "degrade_entered"})

    def _found(self) -> None:
        with self.lock:
            if self._over:
                return
            self.alone = False
            self._tell(entered=False, cause=_BACK)
        log.warning("%s: %s", self._settings.owner_name, _BACK, extra={"action": "degrade_left"})

    def _tell(self, *, entered: bool, cause: str) -> None:
        self._sink.degrade_changed(DegradeChanged(self._settings.owner_name, entered, cause, self._clock.unix_us()))

    def _report_closed(self, account: Account) -> None:
        """Tell the sink of totals that became final."""
        for total in account.take_unreported():
            fact = GrantSettled(account.caller, account.limit, self._member, total, self._clock.unix_us())
            self._sink.grant_settled(fact)

    def _report(self, account: Account, answer: Answer) -> None:
        if answer.grant is not None:
            version = self._decisions.policy_version
            self._sink.grant_issued(GrantIssued(account.caller, account.limit, version, answer.grant, answer.tokens))
        for credit in answer.credited:
            total = Settlement(credit.grant_id, credit.spent, False, SettleCause.CREDITED)
            fact = GrantSettled(account.caller, account.limit, credit.member, total, answer.owner_now_us)
            self._sink.grant_settled(fact)
