"""Sees to it that the broker stamps blocks with its own clock: the second opinion about a copy's.

A topic that an operator made, or an older release, may keep the time that the producer says. Never touches any other
setting of a topic.
"""

from __future__ import annotations

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from stream.admin import TopicsUnavailable, admin_client, fault_of
from stream.contract.topics import DECISIONS

_NAME, _VALUE = "message.timestamp.type", "LogAppendTime"


def ensure_append_time(bootstrap: str, *, timeout_s: float) -> str | None:
    """Set it on the decisions topic, which must exist.

    Returns:
        A sentence about what was changed, or about what could not be and what that means; None if all is well.

    Raises:
        TopicsUnavailable: the broker did not say in time how the topic is set.
    """
    client = admin_client(bootstrap)
    if _found(client, bootstrap, timeout_s) == _VALUE:
        return None
    entry = ConfigEntry(_NAME, _VALUE, incremental_operation=AlterConfigOpType.SET)
    wanted = ConfigResource(ResourceType.TOPIC, DECISIONS.name, incremental_configs=[entry])
    try:
        client.incremental_alter_configs([wanted], request_timeout=timeout_s)[wanted].result(timeout_s + 1.0)
    except (KafkaException, TimeoutError) as error:
        return (
            f"{DECISIONS.name} keeps the producers' time of a message, and could not be changed ({error}): a copy "
            "whose clock is wrong and that does not know the owner's is counted in the minutes that it says. Set it: "
            f"kafka-configs.sh --alter --topic {DECISIONS.name} --add-config {_NAME}={_VALUE}"
        )
    return f"{DECISIONS.name}: set {_NAME}={_VALUE}"


def _found(client: AdminClient, bootstrap: str, timeout_s: float) -> str:
    """How the topic is set; empty if the broker keeps no such setting."""
    asked = ConfigResource(ResourceType.TOPIC, DECISIONS.name)
    try:
        settings = client.describe_configs([asked], request_timeout=timeout_s)[asked].result(timeout_s + 1.0)
    except KafkaException as error:
        raise TopicsUnavailable(
            f"Kafka at {bootstrap} did not say how {DECISIONS.name} is set: {fault_of(error).str()}"
        ) from error
    except TimeoutError as error:
        raise TopicsUnavailable(f"Kafka at {bootstrap} did not say how {DECISIONS.name} is set") from error
    entry = settings.get(_NAME)
    return "" if entry is None else str(entry.value)
