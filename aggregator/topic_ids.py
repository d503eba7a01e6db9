"""The ids of topics, for both readers: a topic that was deleted and made anew has another one. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from aggregator.broker import LogUnavailable
from stream.admin import admin_client, fault_of

_ABSENT = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})


class TopicIds:
    """Asks one cluster. Blocking.

    Args:
        bootstrap: ``host:port``, several separated by commas.
        timeout_s: longest wait for an answer.
    """

    def __init__(self, bootstrap: str, *, timeout_s: float) -> None:
        self._bootstrap = bootstrap
        self._timeout_s = timeout_s

    @cached_property
    def _admin(self) -> AdminClient:
        return admin_client(self._bootstrap, timeout_s=self._timeout_s)

    def of(self, topics: Sequence[str]) -> dict[str, str]:
        """Topic → its id; a topic that does not exist is left out.

        Raises:
            LogUnavailable: the broker does not say.
        """
        found: dict[str, str] = {}
        futures = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=self._timeout_s)
        for topic, future in futures.items():
            try:
                found[topic] = str(future.result(self._timeout_s).topic_id)
            except (KafkaException, TimeoutError) as error:
                if isinstance(error, KafkaException) and fault_of(error).code() in _ABSENT:
                    continue
                raise LogUnavailable(
                    f"Kafka at {self._bootstrap} (TALLYGATE_KAFKA) did not say which topic {topic} is: "
                    f"{str(error) or 'no answer in time'}"
                ) from error
        return found
