"""A message of the log as the recorder takes it, without its client's wrapping."""

from __future__ import annotations

from typing import NamedTuple

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message


class MessagePlace(NamedTuple):
    """One message's place in the log."""

    topic: str
    partition: int
    offset: int


class LogMessage(NamedTuple):
    """One message as it came; `appended_us` is the broker's own time of it, None if the topic does not keep that."""

    place: MessagePlace
    key: bytes
    value: bytes
    appended_us: int | None = None


def taken_from(message: Message) -> LogMessage:
    """A message without its client's wrapping; an absent key or value is empty."""
    place = MessagePlace(message.topic() or "", message.partition() or 0, message.offset() or 0)
    kind, unix_ms = message.timestamp()
    appended_us = unix_ms * 1_000 if kind == TIMESTAMP_LOG_APPEND_TIME else None
    return LogMessage(place, message.key() or b"", message.value() or b"", appended_us)
