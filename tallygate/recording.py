"""The Kafka sink of a service of ours, with its losses among that service's metrics. Only here do the two meet."""

from __future__ import annotations

from enforcer.identity import CopyIdentity
from enforcer.metrics.metrics import Metrics
from enforcer.metrics.watching import watch_losses, watch_spool
from stream import KafkaSink, SinkStats, kafka_sink


def watched_kafka_sink(identity: CopyIdentity, metrics: Metrics) -> KafkaSink:
    """The sink of one copy, watched. Raises `ConfigError` as `kafka_sink` does."""
    sink = kafka_sink(identity)
    watch_losses(metrics, lambda: {"decisions": sink.stats.lost, "facts": sink.stats.facts_lost})
    watch_spool(metrics, lambda: _spool(sink.stats))
    return sink


def _spool(stats: SinkStats) -> tuple[float, float, float]:
    return stats.spool_bytes, stats.spooled, stats.spool_age_s
