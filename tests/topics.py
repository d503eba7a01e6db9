"""Topics that are deleted and made anew, for tests on real brokers."""

from __future__ import annotations

from contextlib import suppress

from confluent_kafka.admin import AdminClient

from stream.admin import TopicsUnavailable, ensure_topics
from tests.processes import wait_until


def make_anew(bootstrap: str, topic: str, *, partitions: int) -> None:
    """Delete a topic, and create it again: its offsets begin at 0."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_topics([topic], operation_timeout=30).values():
        future.result(60)

    def made() -> bool:
        with suppress(TopicsUnavailable):
            ensure_topics(bootstrap, partitions=partitions, timeout_s=10)
        return topic in admin.list_topics(timeout=10).topics

    wait_until(made, 60, what="the topic made anew", poll_s=0.1)
