"""The sink that ships to memory: the same blocks as `KafkaSink` makes, without a thread or a broker. For tests."""

from __future__ import annotations

from collections.abc import Callable

from enforcer.clock import Clock, SystemClock
from enforcer.identity import CopyIdentity
from enforcer.sink import DegradeChanged, Event, GrantIssued, GrantSettled
from enforcer.types import Verdict
from stream.config import StreamConfig
from stream.outbox import Letter
from stream.shipper import Shipper


class MemorySink:
    """Implements `enforcer.sink.Sink`; what was shipped stands in `letters`, in order.

    While `is_away` is set, nothing is shipped, as if the broker were away.
    """

    def __init__(self, config: StreamConfig, identity: CopyIdentity, *, clock: Clock | None = None) -> None:
        self._clock = clock if clock is not None else SystemClock()
        self._partitions = config.partitions
        self._shipper = Shipper(config, identity, now_s=self._clock.monotonic_ns() / 1e9, unix_us=self._clock.unix_us())
        self._is_closed = False
        self.is_away = False
        self.letters: list[Letter] = []

    @property
    def capture(self) -> Callable[[Verdict], None]:
        """The list's own `append`."""
        return self._shipper.captured.append

    @property
    def shipper(self) -> Shipper:
        """The state behind it, with its counts."""
        return self._shipper

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

    def tick(self, *, everything: bool = False) -> None:
        """One round of what the thread of a `KafkaSink` does."""
        self._shipper.step(
            now_ns=self._clock.monotonic_ns(),
            unix_us=self._clock.unix_us(),
            partitions=self._partitions,
            everything=everything,
        )
        if self.is_away:
            return
        outbox = self._shipper.outbox
        for number, letter in outbox.waiting(len(outbox)):
            outbox.remove(number)
            self._shipper.settle(letter)
            self.letters.append(letter)

    def close(self, timeout_s: float) -> None:  # noqa: ARG002  # the port's signature; memory needs no time
        """Ship what was taken, or count it as lost if the broker is away. Safe to call twice."""
        if self._is_closed:
            return
        self._is_closed = True
        self.tick(everything=True)
        if self.is_away:
            self._shipper.abandon(now_s=self._clock.monotonic_ns() / 1e9)
