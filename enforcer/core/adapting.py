"""The adaptive bound of requests in flight: additive increase, multiplicative decrease, on latency against a floor.

Pure: the time is an argument. The bound never leaves least … most, so the worst that a wrong measurement can do is to
protect like the fixed bound, or to serve `least` at a time.

The floor is the latency without a queue. The first is measured with the bound at its least, from where it doubles until
the latency is too long. Later ones are measured with the bound divided by `tolerance`: where latency is at most
tolerance × floor, Little's law says that no queue is left then. A floor taken under load would rise with the load and
drag the bound along. A service that has become slower for good presses the bound down to its least; after some windows
there, what is measured there is the floor.
"""

from __future__ import annotations

from statistics import median

import msgspec

from enforcer.errors import InvalidField


class AdaptingDials(msgspec.Struct, frozen=True, kw_only=True):
    """How the bound moves.

    Attributes:
        window_samples: requests that end a window, if it is old enough. At most so many are kept.
        window_s: shortest window.
        tolerance: latency above tolerance × floor is too long; above 1, at most 4.
        decrease: the bound is multiplied by this after such a window; above 0, below 1.
        remeasure_s: how old a floor may get.
        windows_at_least: windows with the bound at its least, and the latency too long, after which that is the floor.
    """

    window_samples: int = 50
    window_s: float = 0.5
    tolerance: float = 1.6
    decrease: float = 0.9
    remeasure_s: float = 60.0
    windows_at_least: int = 5

    def __post_init__(self) -> None:
        """Raises `InvalidField` for a dial that is out of its range."""
        checks: tuple[tuple[str, float, bool, str], ...] = (
            ("window_samples", self.window_samples, 1 <= self.window_samples <= 10_000, "1 to 10,000"),
            ("window_s", self.window_s, 0 < self.window_s <= 60, "above 0, at most 60"),
            ("tolerance", self.tolerance, 1 < self.tolerance <= 4, "above 1, at most 4"),
            ("decrease", self.decrease, 0 < self.decrease < 1, "above 0, below 1"),
            ("remeasure_s", self.remeasure_s, self.window_s < self.remeasure_s, "above window_s"),
            ("windows_at_least", self.windows_at_least, self.windows_at_least >= 1, "1 or more"),
        )
        for name, value, is_right, allowed in checks:
            if not is_right:
                raise InvalidField(name, value, allowed)


class Adapting:
    """One copy's adaptive bound.

    Attributes:
        bound: requests in flight that are allowed now.
        floor_ns: latency without a queue; 0 before it was measured.
    """

    __slots__ = (
        "_at_least", "_count", "_dials", "_doubling", "_floor_due_ns", "_from_ns", "_least", "_measuring", "_most",
        "_peak", "_resume", "_samples", "_window_ns", "bound", "floor_ns",
    )  # fmt: skip

    def __init__(self, *, least: int, most: int, now_ns: int, dials: AdaptingDials) -> None:
        """Start with the bound at its least, measuring the first floor.

        Raises:
            InvalidField: least and most are not 1 ≤ least ≤ most.
        """
        if not 1 <= least <= most:
            raise InvalidField("least", least, f"1 to the most, {most}")
        self.bound = least
        self.floor_ns = 0
        self._dials = dials
        self._least = least
        self._most = most
        self._resume = least
        self._measuring = True
        self._doubling = True
        self._at_least = 0
        self._floor_due_ns = now_ns
        self._from_ns = now_ns
        self._samples: list[int] = []
        self._count = 0
        self._peak = 0
        self._window_ns = now_ns

    def finished(self, *, began_ns: int, now_ns: int, in_flight: int) -> None:
        """Take the latency of one request that was served, and how many were in flight as it ended, with it."""
        # What was let in before the bound was lowered to measure says nothing about a service without a queue.
        if began_ns < self._from_ns:
            return
        most = self._dials.window_samples
        self._peak = max(self._peak, in_flight)
        if len(self._samples) < most:
            self._samples.append(now_ns - began_ns)
        else:
            self._samples[self._count % most] = now_ns - began_ns
        self._count += 1
        if self._count >= most and now_ns - self._window_ns >= self._dials.window_s * 1e9:
            self._end_window(round(median(self._samples)), now_ns)
            self._start_window(now_ns)

    def _start_window(self, now_ns: int) -> None:
        self._samples.clear()
        self._count = 0
        self._peak = 0
        self._window_ns = now_ns

    def _end_window(self, latency_ns: int, now_ns: int) -> None:
        if self._measuring:
            self._measuring = False
            self.floor_ns = latency_ns
            self._floor_due_ns = now_ns + round(self._dials.remeasure_s * 1e9)
            self.bound = self._resume
        elif now_ns >= self._floor_due_ns:
            self._measuring = True
            self._from_ns = now_ns
            self._resume = self.bound
            self.bound = max(self._least, int(self.bound / self._dials.tolerance))
        else:
            self.floor_ns = min(self.floor_ns, latency_ns)
            self._step(latency_ns)

    def _step(self, latency_ns: int) -> None:
        if latency_ns > self._dials.tolerance * self.floor_ns:
            self._doubling = False
            if self.bound == self._least:
                self._at_least += 1
                if self._at_least >= self._dials.windows_at_least:
                    self.floor_ns, self._at_least = latency_ns, 0
                return
            self.bound = max(self._least, int(self.bound * self._dials.decrease))
        # A bound that nobody comes near was not tried: it must not grow on the strength of an idle service.
        elif 2 * self._peak >= self.bound:
            step = self.bound if self._doubling else max(1, self.bound // 20)
            self.bound = min(self._most, self.bound + step)
        self._at_least = 0
