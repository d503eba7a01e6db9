"""``tallygate topics``: creates the log's topics, for deployments whose broker creates none by itself."""

from __future__ import annotations

import sys

from enforcer.errors import ConfigError
from stream.admin import TopicsUnavailable, ensure_topics
from stream.config import StreamConfig
from stream.contract.topics import TOPICS

_TIMEOUT_S = 30.0


def main() -> int:
    """Create what is missing; 0 if all are there afterwards, 1 if the broker did not answer or disagrees."""
    try:
        config = StreamConfig.from_env()
        ensure_topics(config.bootstrap, partitions=config.partitions, timeout_s=_TIMEOUT_S)
    except (ConfigError, TopicsUnavailable) as fault:
        sys.stderr.write(f"topics: {fault}\n")
        return 1
    names = ", ".join(topic.name for topic in TOPICS)
    sys.stdout.write(f"{config.bootstrap}: {names} with {config.partitions} partitions each\n")
    return 0
