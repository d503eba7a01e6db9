"""Metrics for Prometheus: a collector that reads them when it is scraped. Needs the extra `prometheus`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from enforcer.errors import ConfigError
from enforcer.metrics.metrics import CopyMetrics, describe
from enforcer.metrics.register import HISTOGRAMS, REGISTER

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.registry import Collector
except ImportError as missing:
    raise ConfigError("metrics for Prometheus need the extra: pip install 'tallygate[prometheus]'") from missing

if TYPE_CHECKING:
    from prometheus_client.core import Metric


class PrometheusCollector(Collector):
    """Register it: ``prometheus_client.REGISTRY.register(PrometheusCollector(metrics))``."""

    def __init__(self, metrics: CopyMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """All metrics of the register; one without a series is there with its meaning alone."""
        snapshot = self._metrics.read()
        for name, metric in REGISTER.items():
            if metric.kind == "histogram":
                continue
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(name, describe(name), labels=metric.labels)
            for labels, value in snapshot.values.get(name, {}).items():
                family.add_metric(labels, value)
            yield family
        for histogram, distribution in snapshot.distributions.items():
            bounds = [*(repr(bound) for bound in HISTOGRAMS[histogram].bounds), "+Inf"]
            family_of = HistogramMetricFamily(histogram, describe(histogram))
            family_of.add_metric(
                [],
                [(bound, float(count)) for bound, count in zip(bounds, distribution.counts, strict=True)],
                distribution.total,
            )
            yield family_of
