"""The decisions topic, however it was made, keeps the broker's own time of a block."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from stream.append_time import ensure_append_time
from stream.contract.topics import DECISIONS
from tests.services import KafkaService


def test_ensure_append_time_changes_a_topic_that_keeps_the_producers_time(kafka_broker: KafkaService) -> None:
    """R18: a topic that somebody made by hand must not let a wrong clock choose the minute."""
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})
    for future in admin.create_topics([NewTopic(DECISIONS.name, 4, 1, config={"retention.ms": "1234567"})]).values():
        future.result(60)

    said = ensure_append_time(kafka_broker.bootstrap, timeout_s=60)

    assert said is not None
    assert "set message.timestamp.type=LogAppendTime" in said
    asked = ConfigResource(ResourceType.TOPIC, DECISIONS.name)
    settings: Any = admin.describe_configs([asked])[asked].result(60)
    assert ("LogAppendTime", "1234567") == (settings["message.timestamp.type"].value, settings["retention.ms"].value)
    assert ensure_append_time(kafka_broker.bootstrap, timeout_s=60) is None


def test_ensure_append_time_names_the_step_where_it_may_not_change_it(
    embedded_broker: KafkaService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader without the right to alter topics works, and its operator reads what is to be done."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not authorized"))

    monkeypatch.setattr(AdminClient, "incremental_alter_configs", refuse)
    admin = AdminClient({"bootstrap.servers": embedded_broker.bootstrap})
    for future in admin.create_topics([NewTopic(DECISIONS.name, 4, 1)]).values():
        future.result(60)

    said = ensure_append_time(embedded_broker.bootstrap, timeout_s=60)

    assert said is not None
    assert "not authorized" in said
    assert "--add-config message.timestamp.type=LogAppendTime" in said
