"""Builds the sink from the environment: the one place that does."""

from __future__ import annotations

from enforcer.identity import CopyIdentity
from stream.config import StreamConfig
from stream.producer import KafkaSink


def kafka_sink(identity: CopyIdentity) -> KafkaSink:
    """The sink of one copy, for ``build_limiter(sink=kafka_sink)``.

    Raises:
        ConfigError: a setting is wrong; a broker that is away raises nothing.
    """
    return KafkaSink(StreamConfig.from_env(), identity)
