"""Metrics for OpenTelemetry: observable instruments that read them when they are collected. Needs `opentelemetry`.

OpenTelemetry has no observable histogram: each is three observable counters, ``<name>.bucket`` with the label ``le``
(cumulative, as in Prometheus), ``<name>.sum`` and ``<name>.count``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from enforcer.errors import ConfigError
from enforcer.metrics.metrics import CopyMetrics, describe
from enforcer.metrics.register import HISTOGRAMS, REGISTER, HistogramName, Name

try:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation
except ImportError as missing:
    raise ConfigError("metrics for OpenTelemetry need the extra: pip install 'tallygate[opentelemetry]'") from missing


def observe_with(meter: Meter, metrics: CopyMetrics) -> None:
    """Make an instrument of each metric. Once for a meter: it has no two instruments of one name."""
    for name, metric in REGISTER.items():
        if metric.kind == "counter":
            meter.create_observable_counter(name, [_values(metrics, name)], metric.unit, metric.meaning)
        elif metric.kind == "gauge":
            meter.create_observable_gauge(name, [_values(metrics, name)], metric.unit, metric.meaning)
    for histogram in HISTOGRAMS:
        unit, text = HISTOGRAMS[histogram].unit, describe(histogram)
        meter.create_observable_counter(f"{histogram}.bucket", [_buckets(metrics, histogram)], "1", text)
        meter.create_observable_counter(f"{histogram}.sum", [_sum(metrics, histogram)], unit, text)
        meter.create_observable_counter(f"{histogram}.count", [_count(metrics, histogram)], "1", text)


def _values(metrics: CopyMetrics, name: Name) -> Callable[[CallbackOptions], Iterable[Observation]]:
    names = REGISTER[name].labels

    def observe(_options: CallbackOptions) -> Iterable[Observation]:
        series = metrics.read().values.get(name, {})
        return [Observation(value, dict(zip(names, labels, strict=True))) for labels, value in series.items()]

    return observe


def _buckets(metrics: CopyMetrics, name: HistogramName) -> Callable[[CallbackOptions], Iterable[Observation]]:
    bounds = [*(repr(bound) for bound in HISTOGRAMS[name].bounds), "+Inf"]

    def observe(_options: CallbackOptions) -> Iterable[Observation]:
        counts = metrics.read().distributions[name].counts
        return [Observation(count, {"le": bound}) for bound, count in zip(bounds, counts, strict=True)]

    return observe


def _sum(metrics: CopyMetrics, name: HistogramName) -> Callable[[CallbackOptions], Iterable[Observation]]:
    return lambda _options: [Observation(metrics.read().distributions[name].total)]


def _count(metrics: CopyMetrics, name: HistogramName) -> Callable[[CallbackOptions], Iterable[Observation]]:
    return lambda _options: [Observation(metrics.read().distributions[name].counts[-1])]
