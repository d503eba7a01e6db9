"""The log: blocks of decisions to Kafka. Never blocks or fails a request."""

from __future__ import annotations

try:
    from stream.config import StreamConfig
    from stream.memory import MemorySink
    from stream.producer import KafkaSink, SinkStats
    from stream.wiring import kafka_sink
except ModuleNotFoundError as missing:
    if missing.name not in {"numpy", "confluent_kafka"}:
        raise
    raise ModuleNotFoundError(
        f"the log needs the package {missing.name!r}: pip install 'tallygate[stream]'", name=missing.name
    ) from missing

__all__ = ["KafkaSink", "MemorySink", "SinkStats", "StreamConfig", "kafka_sink"]
