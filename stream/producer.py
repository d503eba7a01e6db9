"""The sink that records to Kafka: a thread takes what the request path has appended, and ships it.

The request path never blocks here and never sees an exception: all it does is append to a list. A fork needs a sink of
its own: neither the thread nor the client survives one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from enforcer.clock import Clock, SystemClock
from enforcer.forking import tell_of_forks
from enforcer.identity import CopyIdentity
from enforcer.sink import DegradeChanged, Event, GrantIssued, GrantSettled
from enforcer.types import Verdict
from stream.buffer import Loss
from stream.client import ProducerLike, confluent_producer
from stream.config import StreamConfig
from stream.courier import Courier
from stream.fault_log import FaultLog
from stream.loss_watch import LossWatch, ending_line
from stream.shipper import Shipper
from stream.spool.spool import Spool

log = logging.getLogger("tallygate.stream")

#: How often the thread looks at what was captured.
_TICK_S: Final = 0.05
_CLOSING_TICK_S: Final = 0.02
#: Longest wait for the list of topics while closing: making them may take four times as long.
_CLOSING_PREPARE_S: Final = 0.25
#: The share of the time for closing that is kept for naming losses, and the least time for it.
_LAST_WORDS_SHARE: Final = 0.2
_LAST_WORDS_S: Final = 1.0
#: Time beyond `close`'s own that its thread may take to end.
_JOIN_GRACE_S: Final = 1.5


@dataclass(frozen=True, slots=True)
class SinkStats:
    """What became of the record so far: decisions and facts (grants and settlements).

    Once nothing moves, ``captured = delivered + lost + queued + late``, unless decisions were numbered and never
    handed over: those are in `lost` alone. `spooled` of the queued are on disk, in files of `spool_bytes`, the oldest
    of which has been there for `spool_age_s`; after `close` they are there for the next copy. `inherited` decisions are
    of dead copies, whose spool this one has shipped: they are in none of the other counts.
    """

    captured: int
    delivered: int
    lost: int
    late: int
    queued: int
    facts_delivered: int
    facts_lost: int
    is_connected: bool
    spooled: int = 0
    spool_bytes: int = 0
    spool_age_s: float = 0.0
    inherited: int = 0


class KafkaSink:
    """Implements `enforcer.sink.Sink`.

    Raises:
        ConfigError: from `StreamConfig`; a broker that is merely away raises nothing, it is tried again and again.
    """

    def __init__(
        self,
        config: StreamConfig,
        identity: CopyIdentity,
        *,
        clock: Clock | None = None,
        make_producer: Callable[[dict[str, Any]], ProducerLike] = confluent_producer,
    ) -> None:
        self._clock = clock if clock is not None else SystemClock()
        self._config = config
        self._shipper = Shipper(config, identity, now_s=self._clock.monotonic_ns() / 1e9, unix_us=self._clock.unix_us())
        self._courier = Courier(
            config,
            identity.copy_id,
            self._shipper.outbox,
            on_delivered=self._shipper.settle,
            on_refused=self._shipper.refuse,
            make_producer=make_producer,
        )
        self._spool = Spool(
            config,
            identity,
            self._shipper.outbox,
            on_unreadable=self._shipper.unreadable,
            found=self._shipper.found,
        )
        self._loss_watch = LossWatch()
        self._faults = FaultLog()
        self._closing = threading.Event()
        self._deadline_s = 0.0
        self._last_words_s = _LAST_WORDS_S
        self._unrecorded: tuple[Loss, ...] = ()
        self._is_parents = False
        self._thread = threading.Thread(target=self._run, name="tallygate-stream", daemon=True)
        self._thread.start()
        tell_of_forks(self)

    def after_fork(self) -> None:
        """See `Forkable`: the record is the parent's to ship, and to close. Neither thread nor client is here."""
        self._is_parents = True
        self._spool.after_fork()

    @property
    def capture(self) -> Callable[[Verdict], None]:
        """The list's own `append`: tens of nanoseconds, from any thread."""
        return self._shipper.captured.append

    @property
    def unrecorded(self) -> tuple[Loss, ...]:
        """After `close`: the decisions that are not on the log, as far as is known, and that no message there names."""
        return self._unrecorded

    @property
    def stats(self) -> SinkStats:
        """A snapshot, from any thread; exact once nothing moves."""
        shipper, spool = self._shipper, self._spool
        return SinkStats(
            captured=shipper.taken,
            delivered=shipper.delivered,
            lost=shipper.lost,
            late=shipper.late,
            queued=shipper.queued + spool.decisions,
            facts_delivered=shipper.facts_delivered,
            facts_lost=shipper.facts_lost,
            is_connected=self._courier.is_connected,
            spooled=spool.decisions,
            spool_bytes=spool.bytes,
            spool_age_s=spool.age_s(time.monotonic()),
            inherited=shipper.inherited,
        )

    def grant_issued(self, fact: GrantIssued) -> None:
        """Take one issued grant."""
        self._shipper.facts.append(fact)

    def grant_settled(self, fact: GrantSettled) -> None:
        """Take one settlement."""
        self._shipper.facts.append(fact)

    def degrade_changed(self, fact: DegradeChanged) -> None:
        """Take one change of state."""
        self._shipper.changes.append(fact)

    def event(self, fact: Event) -> None:
        """Take one of the rarer facts."""
        self._shipper.take_event(fact)

    def close(self, timeout_s: float) -> None:
        """Ship what was taken; after `timeout_s` leave the rest in the spool, for whoever starts next.

        The last fifth of the time (at least a second, even beyond it) is for that; and, where there is no spool or no
        room in it, for saying on the log what will not be there. What not even that could be said of stands in
        `unrecorded`, and in one line of the process's log. What is captured afterwards is not recorded. In a fork of
        the sink's process there is nothing to ship. Safe to call twice.
        """
        if self._is_parents:
            return
        if not self._closing.is_set():
            self._last_words_s = max(_LAST_WORDS_S, min(timeout_s * _LAST_WORDS_SHARE, 2.0))
            self._deadline_s = time.monotonic() + timeout_s * (1 - _LAST_WORDS_SHARE)
            self._closing.set()
        self._thread.join(timeout_s + _JOIN_GRACE_S)

    def _run(self) -> None:
        while not self._closing.wait(_TICK_S):
            self._guarded(self._tick)
        for work in (self._ship_all, self._say_last, self._end):
            self._guarded(work)

    def _guarded(self, work: Callable[[], None]) -> None:
        """Run one round; a fault of ours must neither end the thread nor let the list grow without bound."""
        try:
            work()
        except Exception as error:  # whatever it is, the request path goes on and the next round tries again
            is_full = len(self._shipper.captured) > self._config.max_held
            dropped = self._shipper.drop_captured(now_s=self._now_s()) if is_full else 0
            # Rounds come twenty times a second.
            if self._faults.is_new((type(error).__name__, f"{work.__name__} {error}")):
                log.exception("a round of the record's shipping failed; %d decisions dropped", dropped)

    def _tick(self) -> None:
        self._step(everything=False)
        self._spool_turn()
        self._courier.pump(now_s=time.monotonic())
        line = self._loss_watch.line(self._shipper.lost, now_s=time.monotonic())
        if line is not None:
            log.warning("%s", line)

    def _ship_all(self) -> None:
        # Facts need the partition count, which only the broker knows, or a spool to wait in.
        while self._must_wait_with_facts() and self._has_time():
            self._pump_closing()
        self._step(everything=True)
        while (len(self._shipper.outbox) or self._spool.unread) and self._has_time():
            self._pump_closing()

    def _must_wait_with_facts(self) -> bool:
        return self._courier.partitions is None and not self._spool.is_open and bool(self._shipper.facts)

    def _say_last(self) -> None:
        """Leave to the spool what is not on the log; name there what will not be, if the broker takes at least that."""
        self._deadline_s = time.monotonic() + self._last_words_s
        if self._keep_all() or self._spool.is_busy:
            return
        if self._courier.partitions is None and not self._spool.is_open:
            return
        self._courier.start_afresh()
        while self._has_time():
            self._shipper.give_up(unix_us=self._clock.unix_us())
            if self._keep_all():
                return
            self._pump_closing()

    def _keep_all(self) -> bool:
        """Have on disk what is not on the log; it may take half of the time that is left."""
        now_s = time.monotonic()
        return self._spool.keep_all(partitions=self._courier.partitions, deadline_s=(now_s + self._deadline_s) / 2)

    def _end(self) -> None:
        # First the client's last word: what it has delivered must not count as lost.
        self._courier.close()
        facts_before = self._shipper.facts_lost
        self._unrecorded = tuple(self._shipper.abandon(now_s=self._now_s()))
        line = ending_line(self._unrecorded, facts=self._shipper.facts_lost - facts_before)
        if line is not None:
            log.error("%s", line)
        self._spool.close(deadline_s=self._deadline_s)

    def _pump_closing(self) -> None:
        self._spool_turn()
        left_s = max(self._deadline_s - time.monotonic(), _CLOSING_TICK_S)
        self._courier.pump(now_s=time.monotonic(), wait_s=_CLOSING_TICK_S, prepare_s=min(left_s, _CLOSING_PREPARE_S))

    def _spool_turn(self) -> None:
        courier = self._courier
        self._spool.turn(
            now_s=time.monotonic(),
            in_trouble=courier.is_in_trouble,
            partitions=courier.partitions,
            inherits=not self._closing.is_set(),
        )

    def _now_s(self) -> float:
        return self._clock.monotonic_ns() / 1e9

    def _has_time(self) -> bool:
        return time.monotonic() < self._deadline_s

    def _step(self, *, everything: bool) -> None:
        self._shipper.step(
            now_ns=self._clock.monotonic_ns(),
            unix_us=self._clock.unix_us(),
            partitions=self._courier.partitions,
            everything=everything,
            to_disk=self._spool.is_open and (everything or self._courier.is_in_trouble),
        )
