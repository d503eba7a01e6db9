"""The log: blocks of decisions to Kafka. Never blocks or fails a request."""

from __future__ import annotations

from stream.config import StreamConfig
from stream.memory import MemorySink
from stream.producer import KafkaSink, SinkStats
from stream.wiring import kafka_sink

__all__ = ["KafkaSink", "MemorySink", "SinkStats", "StreamConfig", "kafka_sink"]
