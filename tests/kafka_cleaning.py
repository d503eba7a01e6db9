"""Empty a broker between tests: no topics and no consumer groups of an earlier test. Internal topics stay."""

from __future__ import annotations

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.processes import wait_until

_TIMEOUT_S = 15.0


def clear_broker(bootstrap: str) -> None:
    """Delete all topics and groups; returns once the broker no longer names them.

    Raises:
        TimeoutError: they were still there after 15 s, such as a group whose member a test has left running.
    """
    # The log callback is not wanted: a broker that a test has just restarted makes the client print.
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    wait_until(lambda: _delete_groups(admin), _TIMEOUT_S, what="the end of every consumer group", poll_s=0.1)
    wait_until(lambda: _delete_topics(admin), _TIMEOUT_S, what="the deletion of every topic", poll_s=0.1)


def _delete_groups(admin: AdminClient) -> bool:
    listed = admin.list_consumer_groups(request_timeout=5).result()
    groups = [group.group_id for group in listed.valid]
    if not groups:
        return True
    for outcome in admin.delete_consumer_groups(groups, request_timeout=5).values():
        _settle(outcome)
    return False


def _delete_topics(admin: AdminClient) -> bool:
    topics = [name for name in admin.list_topics(timeout=5).topics if not name.startswith("__")]
    if not topics:
        return True
    for outcome in admin.delete_topics(topics, operation_timeout=5).values():
        _settle(outcome)
    return False


def _settle(outcome: object) -> None:
    """Wait for one deletion. A refusal is no matter: what still exists is asked for again."""
    try:
        outcome.result()  # type: ignore[attr-defined]  # the client's stubs name no type for its futures
    except KafkaException:
        return
