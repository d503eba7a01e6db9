"""How a limiter behaves towards its owner and its own memory: everything that is not policy. Reads no environment."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from enforcer.forking import own_chance


@dataclass(frozen=True, slots=True, kw_only=True)
class LimiterSettings:
    """Defaults fit a gateway; tests and simulations set `threaded` to False and a fixed `jitter`.

    Attributes:
        owner_name: the owner's address as it may be shown, without credentials.
        threaded: ask from a background thread. False: on the calling thread, and nothing happens between calls but by
            `Limiter.tend`.
        locked: take a lock for every decision; None: only on a build of Python without the GIL.
        idle_settle_s: after this long without spending, unspent tokens go home, but for what the copy would use
            before they expire.
        evict_after_s: after this long without a request, a caller is forgotten.
        max_callers: with this many buckets known, one for each limit of each caller, tenant or scope, new callers share
            the anonymous one until others are forgotten.
        ask_ahead_above_ms: the next grant is asked for early while the owner takes longer than this to answer;
            0: always. Asking early saves waits and costs up to half as many asks again.
        close_timeout_s: how long `close` works on settling and shipping; a quarter of it at least is left to the sink.
        jitter: uniform in [0, 1).
    """

    owner_name: str = "owner"
    threaded: bool = True
    locked: bool | None = None
    idle_settle_s: float = 1.0
    evict_after_s: float = 30.0
    max_callers: int = 100_000
    ask_ahead_above_ms: float = 2.0
    close_timeout_s: float = 5.0
    jitter: Callable[[], float] = field(default_factory=own_chance)

    @property
    def takes_lock(self) -> bool:
        """`locked`, or what this build of Python needs."""
        if self.locked is not None:
            return self.locked
        probe = getattr(sys, "_is_gil_enabled", None)
        return probe is not None and not probe()
