"""Sends blocks to the usage topic, and says whether the broker has them. Blocking, for one thread; keeps nothing."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from typing import TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from enforcer.identity import CopyIdentity
from stream.contract.envelope import USAGE_EVENT, event_headers
from stream.contract.topics import USAGE

log = logging.getLogger("tallygate.worker")

Delivered: TypeAlias = Callable[[KafkaError | None, Message], None]

_WAIT_S = 10.0


class KafkaUsage:
    """The usage topic of one cluster."""

    def __init__(self, bootstrap: str, *, wait_s: float = _WAIT_S) -> None:
        self._wait_s = wait_s
        # Whose events they are: those of this life of the process.
        self._identity = CopyIdentity(f"worker-{uuid.uuid4().hex[:12]}", 0)
        self._sent = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": "tallygate-worker-usage",
                "acks": "all",
                "compression.type": "lz4",
                "linger.ms": 5,
                # A message that fails is made anew from the table: what is old by then needs no second try.
                "message.timeout.ms": int(wait_s * 1000),
                "log_level": 0,
            }
        )

    def send(self, messages: Iterator[tuple[int, bytes]]) -> bool:
        """Send (partition, value); whether the broker has all of them after at most some ten seconds."""
        faults: list[str] = []

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                faults.append(error.str())

        until_s = time.monotonic() + self._wait_s
        for partition, value in messages:
            while not faults and not self._queued(partition, value, delivered, faults):
                if time.monotonic() > until_s:
                    faults.append(f"its queue stayed full for {self._wait_s:g} s")
        left = self._producer.flush(max(until_s - time.monotonic(), 0.0)) if not faults else 0
        if faults:
            log.warning("a usage block was not taken by Kafka: %s", faults[0])
        return not faults and left == 0

    def _queued(self, partition: int, value: bytes, delivered: Delivered, faults: list[str]) -> bool:
        try:
            self._producer.produce(
                USAGE.name,
                value,
                partition=partition,
                headers=[*event_headers(USAGE_EVENT, self._identity, self._sent)],
                on_delivery=delivered,
            )
        except BufferError:
            self._producer.poll(0.05)
            return False
        except KafkaException as error:
            faults.append(str(error))
            return True
        self._sent += 1
        self._producer.poll(0)
        return True
