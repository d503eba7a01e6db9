"""A limiter whose owner and sink are measured, on a clock that stands still."""

from __future__ import annotations

from typing import Any

from enforcer.limiting.limiter import Limiter
from enforcer.metrics.measured import MeasuredOwner, MeasuredSink
from enforcer.metrics.metrics import CopyMetrics
from enforcer.settings import LimiterSettings
from enforcer.testing import RecordingSink
from tests.unit.enforcer.harness import Fleet, make_policy

Series = dict[str, dict[tuple[str, ...], float]]


class MeasuredCopy:
    """A limiter whose owner and sink are measured, on a clock that stands still."""

    def __init__(self, **policy: Any) -> None:
        self.fleet = Fleet(make_policy(**policy))
        self.metrics = CopyMetrics()
        self.recorded = RecordingSink()
        self.sink = MeasuredSink(self.recorded, self.metrics, threaded=False)
        owner = MeasuredOwner(self.fleet.owner, self.metrics, name="memory", clock=self.fleet.clock)
        settings = LimiterSettings(threaded=False, owner_name="memory", jitter=lambda: 0.5)
        identity = self.fleet.limiter.identity
        self.limiter = Limiter(self.fleet.policy, owner, self.sink, identity, settings=settings, clock=self.fleet.clock)

    def values(self) -> Series:
        self.sink.drain()
        return {str(name): dict(series) for name, series in self.metrics.read().values.items()}
