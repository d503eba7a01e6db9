"""The sink that records to Kafka: a thread takes what the request path has appended, and ships it.

The request path never blocks here and never sees an exception: all it does is append to a list. Build the sink after
a fork, not before: a thread does not survive one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from enforcer.clock import Clock, SystemClock
from enforcer.identity import CopyIdentity
from enforcer.sink import DegradeChanged, GrantIssued, GrantSettled
from enforcer.types import Verdict
from stream.client import ProducerLike, confluent_producer
from stream.config import StreamConfig
from stream.courier import Courier
from stream.fault_log import FaultLog
from stream.loss_watch import LossWatch
from stream.shipper import Shipper

log = logging.getLogger("tallygate.stream")

#: How often the thread looks at what was captured.
_TICK_S: Final = 0.05
_CLOSING_TICK_S: Final = 0.02
#: Time beyond `close`'s own that its thread may take to end.
_JOIN_GRACE_S: Final = 1.5


@dataclass(frozen=True, slots=True)
class SinkStats:
    """What became of the record so far: decisions and facts (grants and settlements).

    Once nothing moves, ``captured = delivered + lost + queued + late``, unless decisions were numbered and never
    handed over: those are in `lost` alone.
    """

    captured: int
    delivered: int
    lost: int
    late: int
    queued: int
    facts_delivered: int
    facts_lost: int
    is_connected: bool


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
        self._loss_watch = LossWatch()
        self._faults = FaultLog()
        self._closing = threading.Event()
        self._deadline_s = 0.0
        self._thread = threading.Thread(target=self._run, name="tallygate-stream", daemon=True)
        self._thread.start()

    @property
    def capture(self) -> Callable[[Verdict], None]:
        """The list's own `append`: tens of nanoseconds, from any thread."""
        return self._shipper.captured.append

    @property
    def stats(self) -> SinkStats:
        """A snapshot, from any thread; exact once nothing moves."""
        shipper = self._shipper
        return SinkStats(
            captured=shipper.taken,
            delivered=shipper.delivered,
            lost=shipper.lost,
            late=shipper.late,
            queued=shipper.queued,
            facts_delivered=shipper.facts_delivered,
            facts_lost=shipper.facts_lost,
            is_connected=self._courier.is_connected,
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

    def close(self, timeout_s: float) -> None:
        """Ship what was taken; give up after `timeout_s` and count what is left as lost. Safe to call twice.

        What is captured afterwards is not recorded.
        """
        if not self._closing.is_set():
            self._deadline_s = time.monotonic() + timeout_s
            self._closing.set()
        self._thread.join(timeout_s + _JOIN_GRACE_S)

    def _run(self) -> None:
        while not self._closing.wait(_TICK_S):
            self._guarded(self._tick)
        self._guarded(self._finish)

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
        self._courier.pump(now_s=time.monotonic())
        line = self._loss_watch.line(self._shipper.lost, now_s=time.monotonic())
        if line is not None:
            log.warning("%s", line)

    def _finish(self) -> None:
        # Facts need the partition count, which only the broker knows.
        while self._courier.partitions is None and self._shipper.facts and self._has_time():
            self._courier.pump(now_s=time.monotonic(), wait_s=_CLOSING_TICK_S)
        self._step(everything=True)
        while len(self._shipper.outbox) and self._has_time():
            self._courier.pump(now_s=time.monotonic(), wait_s=_CLOSING_TICK_S)
        # First the client's last word: what it has delivered must not count as lost.
        self._courier.close()
        left = self._shipper.abandon(now_s=self._now_s())
        if left:
            log.error("closed while Kafka was away: %d decisions are not recorded", sum(loss.count for loss in left))

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
        )
