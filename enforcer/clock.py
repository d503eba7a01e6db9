"""The two clocks of a copy, as an argument: monotonic for decisions, wall time for the record.

Neither ever refills a bucket; only the owner's clock does.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What the enforcer reads time from."""

    def monotonic_ns(self) -> int:
        """Nanoseconds since some fixed moment; never goes back."""
        ...

    def unix_us(self) -> int:
        """Wall time, microseconds since 1970 in UTC; may step."""
        ...


class SystemClock:
    """The machine's clocks."""

    # The built-in itself, without a Python frame around it: it is read on every decision.
    monotonic_ns = staticmethod(time.monotonic_ns)

    @staticmethod
    def unix_us() -> int:
        """Wall time, microseconds since 1970 in UTC."""
        return time.time_ns() // 1_000


class ManualClock:
    """Stands still until it is moved; for tests and simulations."""

    def __init__(self, *, monotonic_ns: int = 1_000_000_000, unix_us: int = 1_750_000_000_000_000) -> None:
        self._monotonic_ns = monotonic_ns
        self._unix_us = unix_us

    def monotonic_ns(self) -> int:
        """Where `advance` has brought it, nanoseconds."""
        return self._monotonic_ns

    def unix_us(self) -> int:
        """Where `advance` and `step_wall` have brought it, microseconds."""
        return self._unix_us

    def advance(self, seconds: float) -> None:
        """Let time pass on both clocks. Raises `ValueError` if `seconds` is negative."""
        if seconds < 0:
            raise ValueError(f"seconds is {seconds}; allowed: 0 or more, a monotonic clock never goes back")
        self._monotonic_ns += round(seconds * 1e9)
        self._unix_us += round(seconds * 1e6)

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an administrator or NTP would."""
        self._unix_us += round(seconds * 1e6)
