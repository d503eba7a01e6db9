"""What exporters show: the same numbers, by Prometheus's own parser and by OpenTelemetry's own reader."""

from __future__ import annotations

import builtins
import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from enforcer.errors import ConfigError, EnforcerError
from enforcer.metrics.metrics import CopyMetrics
from enforcer.metrics.opentelemetry import observe_with
from enforcer.metrics.prometheus import PrometheusCollector
from enforcer.metrics.register import HISTOGRAMS, REGISTER
from tests.unit.enforcer.metrics.measured_copy import MeasuredCopy

ROOT = Path(__file__).resolve().parents[4]


def _text(metrics: CopyMetrics) -> str:
    registry = CollectorRegistry()
    registry.register(PrometheusCollector(metrics))
    return generate_latest(registry).decode()


def test_prometheus_reads_what_was_counted() -> None:
    """By Prometheus's own parser: names, kinds, labels, buckets and values."""
    copy = MeasuredCopy()
    copy.limiter.check("acme")
    copy.sink.drain()
    copy.metrics.observe("tallygate_check_seconds", 3e-6)
    families = {family.name: family for family in text_string_to_metric_families(_text(copy.metrics))}
    kinds = {name.removesuffix("_total"): metric.kind for name, metric in REGISTER.items()}
    assert kinds == {name: family.type for name, family in families.items()}
    (decision,) = families["tallygate_decisions"].samples
    assert {"allowed": "true", "source": "shared", "reason": "none"} == decision.labels
    buckets = [
        (sample.labels["le"], sample.value)
        for sample in families["tallygate_check_seconds"].samples
        if sample.name.endswith("_bucket")
    ]
    assert [0.0, 0.0, 1.0] == [value for _, value in buckets[:3]]
    assert ("+Inf", 1.0) == buckets[-1]
    assert len(HISTOGRAMS["tallygate_check_seconds"].bounds) + 1 == len(buckets)


def test_opentelemetry_reads_what_was_counted() -> None:
    """The same numbers, whichever of the two is looked at."""
    copy = MeasuredCopy()
    copy.limiter.check("acme")
    copy.sink.drain()
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    observe_with(provider.get_meter("tallygate"), copy.metrics)
    data = reader.get_metrics_data()
    assert data is not None
    points = {
        metric.name: [point for point in metric.data.data_points if isinstance(point, NumberDataPoint)]
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
    }
    provider.shutdown()
    (decision,) = points["tallygate_decisions_total"]
    assert (1, {"allowed": "true", "source": "shared", "reason": "none"}) == (
        decision.value,
        dict(decision.attributes or {}),
    )
    assert [1] == [point.value for point in points["tallygate_k.count"]]
    assert 10 == len(points["tallygate_k.bucket"])


@pytest.mark.parametrize(("module", "needs"), [("prometheus", "prometheus_client"), ("opentelemetry", "opentelemetry")])
def test_a_missing_extra_says_how_to_install_it(module: str, needs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An import error of somebody else's package tells a newcomer nothing."""
    whole = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name.split(".", maxsplit=1)[0] == needs:
            raise ImportError(name)
        return whole(name, *arguments, **options)

    monkeypatch.delitem(sys.modules, f"enforcer.metrics.{module}")
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=re.escape(f"tallygate[{module}]")):
        importlib.import_module(f"enforcer.metrics.{module}")


def test_howto_runs_as_it_stands() -> None:
    """A reader copies it."""
    page = (ROOT / "docs" / "howto" / "watch-the-limiter.md").read_text()
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert code is not None
    found: dict[str, Any] = {}
    exec(code[1], found)
    assert 'tallygate_decisions_total{allowed="true",reason="none",source="shared"} 1.0' in found["page"]
    named = set(re.findall(r"tallygate_\w+", page))
    series = {f"{name}{suffix}" for name in REGISTER for suffix in ("", "_bucket", "_count")}
    assert named <= series
    with pytest.raises(EnforcerError, match="closed"):
        found["limiter"].check("acme")
