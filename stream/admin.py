"""Creates the topics of the log, all with the same partition count, and refuses to work beside others.

Never deletes a topic and never changes its partition count.
"""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from enforcer.errors import ConfigError
from stream.contract.topics import TOPICS, Topic


class TopicsUnavailable(Exception):
    """The broker did not answer, or would not create the topics, in time: try again later."""


class TopicsMismatch(ConfigError):
    """A topic exists with another partition count: correct the setting or the topic."""


def ensure_topics(bootstrap: str, *, partitions: int, timeout_s: float) -> None:
    """Create every topic of `TOPICS` that does not exist yet, explicitly.

    Args:
        bootstrap: Kafka servers, ``host:port`` separated by commas.
        partitions: partition count of all topics.
        timeout_s: longest wait for each of the two requests.

    Raises:
        TopicsUnavailable: the broker did not answer in time.
        TopicsMismatch: a topic exists with another partition count.
    """
    client = admin_client(bootstrap)
    existing = _partition_counts(client, bootstrap, timeout_s)
    _check_counts(existing, partitions)
    absent = [topic for topic in TOPICS if topic.name not in existing]
    if not absent:
        return
    _create(client, absent, partitions, bootstrap, timeout_s)
    _check_counts(_partition_counts(client, bootstrap, timeout_s), partitions)


def admin_client(bootstrap: str, *, timeout_s: float = 10.0) -> AdminClient:
    """A client that asks a cluster about itself; what fails is said by its answers, not on standard error.

    To be kept as long as its answers are waited for: they fail once it is garbage collected.
    """
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "socket.timeout.ms": int(timeout_s * 1000)})


def fault_of(exception: KafkaException) -> KafkaError:
    """The broker's or the client's own error inside an exception of the client."""
    fault = exception.args[0]
    return fault if isinstance(fault, KafkaError) else KafkaError(KafkaError._FAIL, str(fault))


def _partition_counts(client: AdminClient, bootstrap: str, timeout_s: float) -> dict[str, int]:
    """Partition count of every topic that exists; a request for all topics, so that it creates none."""
    try:
        metadata = client.list_topics(timeout=timeout_s)
    except KafkaException as error:
        raise TopicsUnavailable(f"Kafka at {bootstrap} did not answer: {fault_of(error).str()}") from error
    return {name: len(topic.partitions) for name, topic in metadata.topics.items() if topic.error is None}


def _check_counts(existing: dict[str, int], partitions: int) -> None:
    wrong = [
        f"{topic.name} has {existing[topic.name]}"
        for topic in TOPICS
        if topic.name in existing and existing[topic.name] != partitions
    ]
    if wrong:
        raise TopicsMismatch(
            f"TALLYGATE_PARTITIONS is {partitions}, but {', '.join(wrong)}; allowed: the same count for every topic"
        )


def _create(client: AdminClient, topics: Iterable[Topic], partitions: int, bootstrap: str, timeout_s: float) -> None:
    futures = client.create_topics(
        [NewTopic(topic.name, partitions, -1, config=_topic_config(topic)) for topic in topics],
        operation_timeout=timeout_s,
        request_timeout=timeout_s,
    )
    for name, future in futures.items():
        try:
            future.result(timeout_s + 1.0)
        except KafkaException as error:
            if fault_of(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise TopicsUnavailable(
                    f"Kafka at {bootstrap} did not create {name}: {fault_of(error).str()}"
                ) from error
        except TimeoutError as error:
            raise TopicsUnavailable(f"Kafka at {bootstrap} did not create {name} in {timeout_s} s") from error


def _topic_config(topic: Topic) -> dict[str, str]:
    segments = {} if topic.segment_ms is None else {"segment.ms": str(topic.segment_ms)}
    return {
        **segments,
        "cleanup.policy": "compact" if topic.compacted else "delete",
        "retention.ms": str(topic.retention_ms),
        # Event time is a field of the message; what the record's own timestamp says is when it arrived.
        "message.timestamp.type": "LogAppendTime",
    }
