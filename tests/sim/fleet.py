"""A fleet in simulated time: copies that hold the product's own accounts, one owner, a wire, and what can go wrong.

Event by event and seeded; nothing waits and no clock is read. What a copy does with a request is what
`limiting/limiter.py` and `limiting/asker.py` do, on `core.account.Account`: one round to the owner at a time, requests
without a grant wait for it. It never decides by rules of its own.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from enforcer.core.account import Account
from enforcer.core.degrade import Fallback
from enforcer.core.idle import goes_home
from enforcer.messages import Answer, Ask, SettleCause
from enforcer.types import Plan, Reason
from tests.sim.figures import Figures, oracle, worst_excess
from tests.sim.owners import OwnerRule
from tests.sim.timeline import SECOND_US, Timeline
from tests.sim.traffic import Traffic
from tests.sim.world import Place, Seat, World

START_US = 1_780_000_000_000_000
_EVICT_NS = 30_000_000_000
_TICK_NS = 250_000_000


class Fleet(Timeline):
    """One run. `run` may be called once."""

    def __init__(self, rule: OwnerRule, plans: Sequence[Plan], world: World, *, seed: int) -> None:
        super().__init__(plans, world)
        self._rule = rule
        self._chance = random.Random(seed)
        self._free_us = 0.0
        self._end_us = 0
        self._at_us: list[int] = []
        self._decided = bytearray()
        self._waits = [0] * len(plans)
        self._waits_us: list[list[int]] = [[] for _ in plans]
        self._asked_us: list[list[int]] = [[] for _ in plans]

    def run(self, requests: Sequence[Traffic]) -> list[Figures]:
        """Send each caller's requests; what came of each caller."""
        world = self._world
        times = np.concatenate([np.asarray(one.at_us, np.int64) for one in requests])
        seat_no = np.concatenate([np.asarray(one.copy, np.int64) + n * world.fleet for n, one in enumerate(requests)])
        order = np.argsort(times, kind="stable")
        self._at_us = times[order].tolist()
        self._decided = bytearray(len(order))
        self._end_us = round(max(one.seconds for one in requests) * SECOND_US)
        self._schedule()
        self._send(seat_no[order].tolist())
        self._happen_until(None)
        decided = np.frombuffer(self._decided, np.uint8)
        back = np.empty(len(order), np.uint8)
        back[order] = decided
        ends = np.cumsum([len(one.at_us) for one in requests])[:-1]
        parts = np.split(back, ends)
        return [
            self._figures(caller, one, part) for caller, (one, part) in enumerate(zip(requests, parts, strict=True))
        ]

    def _send(self, seat_no: list[int]) -> None:
        events, decided, careful = self._events, self._decided, bool(self._world.freezes)
        for index, at_us in enumerate(self._at_us):
            if events and events[0][0] <= at_us:
                self._happen_until(at_us)
            seat = self._seats[seat_no[index]] or self._new_seat(seat_no[index], at_us)
            if careful and at_us < seat.place.frozen_until_us:
                self._push(seat.place.frozen_until_us, self._arrive, seat, index)
                continue
            # The fast path of `Limiter.check`, line by line.
            now_ns = at_us * 1_000
            lease = seat.account.current
            left = lease.left - 1
            if left >= 0:
                if now_ns < lease.until_ns:
                    lease.left = left
                    decided[index] = 1
                    seat.admitted.append(at_us)
                    if left < lease.low:
                        self._ask_ahead(seat, at_us)
                    continue
            elif now_ns < lease.refused_until_ns:
                lease.left = left
                continue
            self._decide(seat, index, at_us)

    def _arrive(self, at_us: int, seat: Seat, index: int) -> None:
        """A request that a frozen copy finds when it goes on."""
        if self._thawed(seat.place, at_us, self._arrive, seat, index):
            self._decide(seat, index, at_us)

    def _decide(self, seat: Seat, index: int, at_us: int) -> None:
        account, place, now_ns = seat.account, seat.place, at_us * 1_000
        if now_ns - account.touched_ns >= _EVICT_NS and not (account.holds_grant or account.finals or seat.waiting):
            account = seat.account = Account(account.due, now_ns=now_ns)
        account.touched_ns = now_ns
        alone = at_us < place.alone_until_us
        left = account.spend(1, now_ns, past_expiry=alone)
        if left >= 0:
            self._admit(seat, index, at_us)
            if left < account.current.low:
                self._ask_ahead(seat, at_us)
        elif now_ns < account.refused_until_ns(1):
            account.refuse(1)
        elif alone:
            self._decide_alone(seat, index, at_us)
        else:
            seat.waiting.append(index)
            self._enqueue(seat, at_us)

    def _waited(self, seat: Seat, index: int, at_us: int) -> None:
        self._waits[seat.caller] += 1
        if 2 * at_us > self._end_us:
            self._waits_us[seat.caller].append(at_us - self._at_us[index])

    def _admit(self, seat: Seat, index: int, at_us: int) -> None:
        self._decided[index] = 1
        seat.admitted.append(at_us)

    def _decide_alone(self, seat: Seat, index: int, at_us: int) -> None:
        """Fail static, as plans that are small to the fleet do: a full bucket in this copy."""
        account = seat.account
        account.refuse(1)
        kind = Fallback(account.plan.rate_per_s, float(account.plan.burst), Reason.SPENT)
        if account.local_bucket(kind, at_us * 1_000).take(kind, 1, at_us * 1_000) == 0:
            self._admit(seat, index, at_us)

    def _ask_ahead(self, seat: Seat, at_us: int) -> None:
        account = seat.account
        if account.upcoming is None and at_us >= seat.place.alone_until_us:
            account.current.low = 0
            self._enqueue(seat, at_us)

    def _enqueue(self, seat: Seat, at_us: int) -> None:
        if not seat.queued:
            seat.queued = True
            seat.place.pending.append(seat)
        if not seat.place.busy:
            batch, seat.place.pending = seat.place.pending, []
            self._round(seat.place, batch, at_us, ahead=True)

    def _round(self, place: Place, batch: list[Seat], at_us: int, *, ahead: bool) -> None:
        """Compose an ask for each seat and send them all together."""
        place.busy = True
        asks: list[Ask] = []
        for seat in batch:
            seat.queued = False
            seat.counted = len(seat.waiting)
            place.ask_no += 1
            asks.append(
                seat.account.ask(
                    ask_no=place.ask_no,
                    member=str(place),
                    now_ns=at_us * 1_000,
                    jitter=self._chance.random(),
                    waiting=[1] * seat.counted,
                    ahead=ahead,
                )
            )
            seat.account.take_unreported()
        lose = self._world.lose
        there, back = (not lose or self._chance.random() >= lose), (not lose or self._chance.random() >= lose)
        if there:
            self._push(at_us + self._world.rtt_us // 2, self._owner, place, place.epoch, batch, asks, at_us, back)
        if not (there and back):
            self._push(at_us + self._world.timeout_us, self._lost, place, place.epoch, batch)

    def _owner(
        self, at_us: int, place: Place, epoch: int, batch: list[Seat], asks: list[Ask], sent_us: int, back: bool
    ) -> None:
        """The owner answers one ask after the other, each after what came before it."""
        answers: list[Answer] = []
        for seat, ask in zip(batch, asks, strict=True):
            started_us = max(float(at_us), self._free_us)
            self._free_us = started_us + self._world.service_us
            if at_us <= self._end_us:
                self._asked_us[seat.caller].append(at_us)
            now_us = START_US + int(started_us) + self._offset_us
            self._states[ask.caller], answered = self._rule(self._states.get(ask.caller), ask, now_us)
            answers.append(answered)
        if back:
            done_us = int(max(self._free_us, at_us)) + self._world.rtt_us - self._world.rtt_us // 2
            self._push(done_us, self._reply, place, epoch, batch, asks, answers, sent_us)

    def _reply(
        self,
        at_us: int,
        place: Place,
        epoch: int,
        batch: list[Seat],
        asks: list[Ask],
        answers: list[Answer],
        sent_us: int,
    ) -> None:
        again = (place, epoch, batch, asks, answers, sent_us)
        if place.epoch != epoch or not self._thawed(place, at_us, self._reply, *again):
            return
        place.rtt_s += ((at_us - sent_us) / 1e6 - place.rtt_s) * 0.1
        ahead_on = place.rtt_s * 1e3 >= self._world.ahead_above_ms
        place.busy = False
        now_ns = at_us * 1_000
        for seat, ask, answered in zip(batch, asks, answers, strict=True):
            seat.account.answered(ask, answered, sent_ns=sent_us * 1_000, now_ns=now_ns, ahead_on=ahead_on)
            self._serve(seat, at_us)
            if answered.grant is not None and not seat.watched and self._world.idle_settle_us:
                seat.watched = True
                self._push(at_us + self._world.idle_settle_us, self._idle, seat, epoch, seat.account.spent)
        self._go_on(place, at_us)

    def _serve(self, seat: Seat, at_us: int) -> None:
        """Decide about those who waited for this answer; those who came after it was asked for may wait on."""
        account, now_ns = seat.account, at_us * 1_000
        staying: list[int] = []
        for number, index in enumerate(seat.waiting):
            if account.spend(1, now_ns) >= 0:
                self._admit(seat, index, at_us)
            elif number < seat.counted or now_ns < account.refused_until_ns(1):
                account.refuse(1)
            else:
                staying.append(index)
                continue
            self._waited(seat, index, at_us)
        seat.waiting = staying
        if staying and not seat.queued:
            seat.queued = True
            seat.place.pending.append(seat)

    def _go_on(self, place: Place, at_us: int) -> None:
        if place.pending and not place.busy:
            batch, place.pending = place.pending, []
            self._round(place, batch, at_us, ahead=True)

    def _idle(self, at_us: int, seat: Seat, epoch: int, mark: int) -> None:
        """Give home what a copy has not spent from for a while."""
        account, place = seat.account, seat.place
        if at_us > self._end_us or place.epoch != epoch:
            return
        if not self._thawed(place, at_us, self._idle, seat, epoch, mark):
            return
        spent = account.spent
        look_ns = (at_us + self._world.idle_settle_us) * 1_000
        at_rest = spent == mark and not (seat.queued or place.busy or at_us < place.alone_until_us)
        if at_rest and (account.finals or goes_home(account, look_ns + _TICK_NS)):
            if not account.close_all(SettleCause.IDLE, at_us * 1_000):
                seat.watched = False
                return
            self._round(place, [seat], at_us, ahead=False)
        self._push(at_us + self._world.idle_settle_us, self._idle, seat, epoch, spent)

    def _lost(self, at_us: int, place: Place, epoch: int, batch: list[Seat]) -> None:
        """No answer came: decide alone for a while, as the breaker does."""
        if place.epoch != epoch or not self._thawed(place, at_us, self._lost, place, epoch, batch):
            return
        place.busy = False
        place.alone_until_us = at_us + int(self._world.retry_us * (0.5 + 0.5 * self._chance.random()))
        for seat in place.seats:
            waiting, seat.waiting = seat.waiting, []
            for index in waiting:
                self._waited(seat, index, at_us)
                if seat.account.spend(1, at_us * 1_000, past_expiry=True) >= 0:
                    self._admit(seat, index, at_us)
                else:
                    self._decide_alone(seat, index, at_us)

    def _figures(self, caller: int, requests: Traffic, decided: npt.NDArray[np.uint8]) -> Figures:
        plan = self._terms[caller].plan
        exact = np.frombuffer(oracle(requests, plan), np.uint8)
        asked, waits = self._asked_us[caller], self._waits_us[caller]
        return Figures(
            offered=len(exact),
            admitted=int(decided.sum()),
            oracle_admitted=int(exact.sum()),
            wrongful=int(((exact == 1) & (decided == 0)).sum()),
            waited=self._waits[caller],
            asks=len(asked),
            worst_excess=worst_excess(self._admitted[caller], plan),
            burst=plan.burst,
            seconds=requests.seconds,
            asks_late=sum(1 for at_us in asked if at_us > self._end_us / 2),
            wait_us_p50=float(np.percentile(waits, 50)) if waits else 0.0,
            wait_us_p99=float(np.percentile(waits, 99)) if waits else 0.0,
        )
