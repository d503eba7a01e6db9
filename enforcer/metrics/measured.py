"""Wrappers around the ports: an owner and a sink that are measured. The path of a request is as long as without them.

They change nothing of what they pass on. The sink's decisions are counted by a thread of its own, which then hands them
to the sink behind it: capturing one stays a list's own `append`. They arrive there up to `_EVERY_S` later, and one that
is killed in between is lost with all that the sink had not shipped.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from operator import attrgetter

from enforcer.clock import Clock
from enforcer.messages import Answer, Ask, AskFault
from enforcer.metrics.metrics import Metrics
from enforcer.owners.port import Owner
from enforcer.sink import DegradeChanged, Event, GrantIssued, GrantSettled, Sink
from enforcer.types import Reason, Source, Verdict

log = logging.getLogger("enforcer")

_EVERY_S = 0.05
_outcome_of = attrgetter("allowed", "code")


class MeasuredOwner:
    """Implements `Owner` by another one: round trips, outcomes, k, and its clock."""

    def __init__(self, owner: Owner, metrics: Metrics, *, name: str, clock: Clock) -> None:
        """Measure `owner`, whose address without credentials is `name`."""
        self._owner = owner
        self._metrics = metrics
        self._name = name
        self._clock = clock
        self._latest_us = 0
        self._most_back = 0
        metrics.put("tallygate_degraded", 0, name)

    def ask(self, asks: Sequence[Ask]) -> Sequence[Answer | AskFault]:
        """See `Owner.ask`."""
        sent_ns = self._clock.monotonic_ns()
        answered = False
        try:
            outcomes = self._owner.ask(asks)
            answered = True
        finally:
            self._metrics.observe("tallygate_owner_seconds", (self._clock.monotonic_ns() - sent_ns) / 1e9)
            if not answered:
                self._metrics.add("tallygate_asks_total", len(asks), self._name, "unavailable")
        self._count(outcomes)
        return outcomes

    def probe(self) -> None:
        """See `Owner.probe`."""
        self._owner.probe()

    def close(self) -> None:
        """See `Owner.close`."""
        self._owner.close()

    def _count(self, outcomes: Sequence[Answer | AskFault]) -> None:
        answers = [outcome for outcome in outcomes if isinstance(outcome, Answer)]
        for outcome, count in (("answered", len(answers)), ("fault", len(outcomes) - len(answers))):
            if count:
                self._metrics.add("tallygate_asks_total", count, self._name, outcome)
        for answer in answers:
            self._metrics.observe("tallygate_k", answer.k)
            if answer.owner_now_us < self._latest_us:
                self._metrics.add("tallygate_owner_clock_steps_back_total", 1, self._name)
            self._latest_us = answer.owner_now_us
            if answer.clock_back > self._most_back:
                self._most_back = answer.clock_back
                self._metrics.put("tallygate_owner_clock_back", self._most_back, self._name)


class MeasuredSink:
    """Implements `Sink` by another one: decisions by outcome, grants, and who decides without an owner."""

    def __init__(self, sink: Sink, metrics: Metrics, *, threaded: bool = True) -> None:
        """Measure `sink`; `threaded` False: only `drain` and `close` count and hand on."""
        self._sink = sink
        self._metrics = metrics
        self._taken: list[Verdict] = []
        self._forward = sink.capture
        self._draining = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        if threaded:
            self._thread = threading.Thread(target=self._run, name="enforcer-metrics", daemon=True)
            self._thread.start()

    @property
    def capture(self) -> Callable[[Verdict], None]:
        """See `Sink.capture`: a list's own `append`."""
        return self._taken.append

    def grant_issued(self, fact: GrantIssued) -> None:
        """See `Sink.grant_issued`."""
        self._metrics.add("tallygate_grants_total", 1)
        self._metrics.add("tallygate_granted_tokens_total", fact.grant.size)
        self._sink.grant_issued(fact)

    def grant_settled(self, fact: GrantSettled) -> None:
        """See `Sink.grant_settled`."""
        self._sink.grant_settled(fact)

    def degrade_changed(self, fact: DegradeChanged) -> None:
        """See `Sink.degrade_changed`."""
        self._metrics.put("tallygate_degraded", int(fact.entered), fact.owner)
        self._metrics.add("tallygate_degrade_changes_total", 1, fact.owner, "alone" if fact.entered else "shared")
        self._sink.degrade_changed(fact)

    def event(self, fact: Event) -> None:
        """See `Sink.event`."""
        self._sink.event(fact)

    def close(self, timeout_s: float) -> None:
        """See `Sink.close`. All that was taken is counted and handed on first."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(timeout_s)
        self.drain()
        self._sink.close(timeout_s)

    def drain(self) -> None:
        """Count what was taken, and hand it on, in its order."""
        with self._draining:
            count = len(self._taken)
            # Both are one step each under the GIL; what is appended in between stands behind.
            verdicts = self._taken[:count]
            del self._taken[:count]
            # Handed on first: whatever becomes of the counting, the record is whole.
            deque(map(self._forward, verdicts), maxlen=0)
            for (allowed, code), number in Counter(map(_outcome_of, verdicts)).items():
                source, reason = Source(code >> 4).name.lower(), Reason(code & 15).name.lower()
                self._metrics.add("tallygate_decisions_total", number, str(allowed).lower(), source, reason)

    def _run(self) -> None:
        while not self._closing.wait(_EVERY_S):
            try:
                self.drain()
            except Exception:  # without this thread nothing would be recorded any more
                log.exception("decisions could not be handed on", extra={"action": "metrics_error"})
