"""The Faust agent of either stage: each message goes to the job, and nothing else happens here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import faust
from faust.types import AgentT, EventT

from aggregator.worker.ports import LogMessage

#: The kind of a Kafka record's timestamp that the broker makes; kind 0 is the producer's.
_LOG_APPEND_TIME = 1

Take = Callable[[LogMessage], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class FaustMessage:
    """A Faust event as the job sees it."""

    event: EventT[Any]

    @property
    def partition(self) -> int:
        """See `LogMessage`."""
        return int(self.event.message.partition)

    @property
    def offset(self) -> int:
        """See `LogMessage`."""
        return int(self.event.message.offset)

    @property
    def value(self) -> bytes:
        """See `LogMessage`; a message without a value is an empty one, which is no block."""
        value = self.event.value
        return value if isinstance(value, bytes) else b""

    @property
    def timestamp_s(self) -> float:
        """See `LogMessage`."""
        return float(self.event.message.timestamp)

    @property
    def appended_us(self) -> int | None:
        """See `LogMessage`."""
        if self.event.message.timestamp_type != _LOG_APPEND_TIME:
            return None
        # Faust has made seconds of the log's milliseconds.
        return round(self.timestamp_s * 1_000) * 1_000

    def ack(self) -> None:
        """See `LogMessage`."""
        self.event.ack()


def add_agent(app: faust.App, topic: faust.TopicT, take: Take, *, name: str) -> AgentT[Any]:
    """Register the agent that hands every message of `topic` to `take`, one after the other."""

    async def hand_on(stream: Any) -> None:
        # noack: a message is acknowledged by the job, after the rows that cover it are stored.
        async for event in stream.noack().events():
            await take(FaustMessage(event))

    return app.agent(topic, name=name)(hand_on)
