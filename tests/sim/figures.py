"""What a run came to: wrongful refusals against the exact bucket, the worst window, calls, waits.

Only counts; it decides nothing, and knows no design.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from enforcer.types import Plan
from tests.sim.traffic import Traffic


@dataclass(frozen=True)
class Figures:
    """One run of one design.

    Attributes:
        offered, admitted, oracle_admitted: requests; the last is what the exact bucket admits.
        wrongful: refused although the exact bucket admits them.
        waited: requests that waited for the owner.
        asks: calls at the owner, lone settlements among them.
        worst_excess: most that was admitted in any window of t seconds beyond burst + rate × t.
        burst: of the plan.
        seconds: length of the run.
        asks_late: calls in the last half of the run, after every ramp.
        wait_us_p50, wait_us_p99: how long those waited who did, in the last half of the run.
    """

    offered: int
    admitted: int
    oracle_admitted: int
    wrongful: int
    waited: int
    asks: int
    worst_excess: float
    burst: int
    seconds: float
    asks_late: int = 0
    wait_us_p50: float = 0.0
    wait_us_p99: float = 0.0

    @property
    def wrongful_pct(self) -> float:
        """Of the offered."""
        return 100.0 * self.wrongful / max(1, self.offered)

    @property
    def refused_by_oracle_pct(self) -> float:
        """Of the offered: how far the traffic is beyond the plan."""
        return 100.0 * (self.offered - self.oracle_admitted) / max(1, self.offered)

    @property
    def over_pct_of_burst(self) -> float:
        """The worst window's excess, in per cent of the burst."""
        return 100.0 * max(0.0, self.worst_excess) / self.burst

    @property
    def asks_per_s(self) -> float:
        """Over the whole run."""
        return self.asks / self.seconds

    @property
    def asks_late_per_s(self) -> float:
        """Over the last half of the run, after every ramp."""
        return 2.0 * self.asks_late / self.seconds

    @property
    def wait_pct(self) -> float:
        """Requests that waited for the owner, of the offered."""
        return 100.0 * self.waited / max(1, self.offered)

    @property
    def rate_ratio(self) -> float:
        """Admitted, in parts of what the exact bucket admits: 1 is exact on the rate."""
        return self.admitted / max(1, self.oracle_admitted)


def oracle(requests: Traffic, plan: Plan) -> bytearray:
    """What the one exact bucket that was sold decides, at the arrival times: 1 for each request admitted.

    Counts in millionths of a token, as the owner does, so that a whole rate is exact.
    """
    admits = bytearray(len(requests.at_us))
    burst, before = plan.burst * 1e6, 0
    tokens = burst
    for index, at_us in enumerate(requests.at_us):
        tokens = min(burst, tokens + plan.rate_per_s * (at_us - before))
        before = at_us
        if tokens >= 1e6:
            tokens -= 1e6
            admits[index] = 1
    return admits


def worst_excess(admitted_us: Sequence[int], plan: Plan) -> float:
    """Most that was admitted in any window beyond burst + rate × t; times in order."""
    if not admitted_us:
        return 0.0
    level = np.arange(1, len(admitted_us) + 1) - plan.rate_per_s * np.asarray(admitted_us, np.float64) / 1e6
    return float((level - np.minimum.accumulate(level - 1.0)).max()) - plan.burst
