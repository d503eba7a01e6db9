"""Where metrics are counted, and read from any thread. Bounded, and it never talks to anyone: exporters pull.

`NullMetrics` is for copies that nobody watches.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol, TypeAlias

from enforcer.errors import InvalidField
from enforcer.forking import tell_of_forks
from enforcer.metrics.register import (
    COUNTERS,
    GAUGES,
    HISTOGRAMS,
    REGISTER,
    CounterName,
    GaugeName,
    HistogramName,
    Name,
)

log = logging.getLogger("enforcer")

#: Values of a metric's labels, in the order of the register.
Labels: TypeAlias = tuple[str, ...]
#: Series of one metric; what is beyond is counted together.
_MOST_SERIES = 128
_OTHER = "(other)"


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram as read: values up to each bound, cumulative, the last one being all; and their sum."""

    counts: tuple[int, ...]
    total: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All metrics at one moment. Series that nothing was counted in are absent."""

    values: Mapping[Name, Mapping[Labels, float]]
    distributions: Mapping[HistogramName, Distribution]


class Metrics(Protocol):
    """What is told to metrics. Everything may be called from any thread, and none of it raises for what it counts."""

    def add(self, name: CounterName, amount: float, *labels: str) -> None:
        """Count."""
        ...

    def put(self, name: GaugeName, value: float, *labels: str) -> None:
        """State."""
        ...

    def observe(self, name: HistogramName, value: float) -> None:
        """Sort one value into its bucket."""
        ...

    def watch(self, name: CounterName | GaugeName, read: Callable[[], Mapping[Labels, float]]) -> None:
        """Have it read whenever the metrics are, instead of counted: a total for a counter."""
        ...


class NullMetrics:
    """Counts nothing."""

    def add(self, name: CounterName, amount: float, *labels: str) -> None:
        """See `Metrics.add`."""

    def put(self, name: GaugeName, value: float, *labels: str) -> None:
        """See `Metrics.put`."""

    def observe(self, name: HistogramName, value: float) -> None:
        """See `Metrics.observe`."""

    def watch(self, name: CounterName | GaugeName, read: Callable[[], Mapping[Labels, float]]) -> None:
        """See `Metrics.watch`."""


class CopyMetrics:
    """Implements `Metrics` for one copy; read it with `read`."""

    def __init__(self) -> None:
        self._watched: dict[Name, list[Callable[[], Mapping[Labels, float]]]] = {}
        self._begin()
        tell_of_forks(self)

    def after_fork(self) -> None:
        """See `Forkable`: what was counted is the parent's, and told by it. What is watched is watched here too."""
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[Name, dict[Labels, float]] = {}
        self._buckets: dict[HistogramName, list[int]] = {
            name: [0] * (len(metric.bounds) + 1) for name, metric in HISTOGRAMS.items()
        }
        self._sums: dict[HistogramName, float] = dict.fromkeys(HISTOGRAMS, 0.0)

    def add(self, name: CounterName, amount: float, *labels: str) -> None:
        """See `Metrics.add`.

        Raises:
            InvalidField: the amount is below 0, or there are not as many labels as the register says.
        """
        if not amount >= 0:
            raise InvalidField(name, amount, "0 or more: a counter never falls")
        with self._lock:
            series, key = self._series(COUNTERS[name].labels, name, labels)
            series[key] = series.get(key, 0) + amount

    def put(self, name: GaugeName, value: float, *labels: str) -> None:
        """See `Metrics.put`. Raises `InvalidField` if there are not as many labels as the register says."""
        with self._lock:
            series, key = self._series(GAUGES[name].labels, name, labels)
            series[key] = value

    def observe(self, name: HistogramName, value: float) -> None:
        """See `Metrics.observe`."""
        place = bisect_left(HISTOGRAMS[name].bounds, value)
        with self._lock:
            self._buckets[name][place] += 1
            self._sums[name] += value

    def watch(self, name: CounterName | GaugeName, read: Callable[[], Mapping[Labels, float]]) -> None:
        """See `Metrics.watch`. What several watch is added up."""
        with self._lock:
            self._watched.setdefault(name, []).append(read)

    def read(self) -> Snapshot:
        """All metrics as they are now. One that cannot be read is left out, and the log says so."""
        with self._lock:
            values = {name: dict(series) for name, series in self._values.items()}
            watched = [(name, read) for name, reads in self._watched.items() for read in reads]
            distributions = {
                name: Distribution(tuple(accumulate(buckets)), self._sums[name])
                for name, buckets in self._buckets.items()
            }
        for name, read in watched:
            try:
                found = dict(read())
            except Exception:  # whatever is wrong with one of them, the others must be seen
                log.exception("the metric %s could not be read", name, extra={"action": "metric_failed"})
                continue
            series = values.setdefault(name, {})
            for labels, value in found.items():
                series[labels] = series.get(labels, 0) + value
        return Snapshot(values, distributions)

    def _series(self, expected: tuple[str, ...], name: Name, labels: Labels) -> tuple[dict[Labels, float], Labels]:
        if len(labels) != len(expected):
            raise InvalidField(name, labels, f"values of the labels {expected}")
        series = self._values.setdefault(name, {})
        if labels not in series and len(series) >= _MOST_SERIES:
            labels = (_OTHER,) * len(expected)
        return series, labels


def describe(name: Name) -> str:
    """Meaning and unit in one line, as exporters show it."""
    metric = REGISTER[name]
    return f"{metric.meaning} Unit: {metric.unit}."
