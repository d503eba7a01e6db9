"""The letters as the record has them: found, listed, and marked as re-driven. Never changes or deletes one."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa

from aggregator.sql import load_queries
from aggregator.store import Store
from stream.contract.codec import CorruptBlock, decode_block

_QUERIES = load_queries("aggregator.sql", "dead_letters.sql")
_PLACE = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})\[(?P<partition>[0-9]{1,5})\]@(?P<offset>[0-9]{1,19})")
_MOST_PARTITIONS = 65_536


class LetterPlace(NamedTuple):
    """Where a letter stood in the log; written ``topic[partition]@offset``, as the recorder's log writes it."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        """As it is read back by `place_of`."""
        return f"{self.topic}[{self.partition}]@{self.offset}"


@dataclass(frozen=True, slots=True)
class Listed:
    """One letter in a list; `redriven_us` is 0 and `by` empty while it is open. Times are unix microseconds."""

    place: LetterPlace
    log_id: str
    seen_us: int
    reason: str
    size: int
    redriven_us: int
    by: str


@dataclass(frozen=True, slots=True)
class StoredLetter:
    """One letter whole."""

    place: LetterPlace
    log_id: str
    seen_us: int
    reason: str
    key: bytes
    payload: bytes
    redriven_us: int
    by: str


@dataclass(frozen=True, slots=True)
class Mark:
    """That a letter was re-driven: when (unix microseconds), by whom, whether with other bytes, and where it is now."""

    redriven_us: int
    by: str
    repaired: bool
    to_partition: int
    to_offset: int


def place_of(text: str) -> LetterPlace:
    """Read ``topic[partition]@offset``.

    Raises:
        ValueError: it is not that.
    """
    match = _PLACE.fullmatch(text)
    if match is None or int(match["partition"]) >= _MOST_PARTITIONS:
        raise ValueError(f"{text!r} is not a place; allowed: topic[partition]@offset, as in tallygate.decisions[0]@4")
    return LetterPlace(match["topic"], int(match["partition"]), int(match["offset"]))


def letters(store: Store, *, from_us: int, to_us: int, topic: str, redriven_too: bool, most: int) -> list[Listed]:
    """Letters that were seen in a span, oldest first; an empty topic means all."""
    rows = store.rows(
        _QUERIES["letters"].sql,
        {"from_us": from_us, "to_us": to_us, "topic": topic, "all": redriven_too, "most": most},
    )
    return [
        Listed(
            LetterPlace(str(name), int(partition), int(offset)),
            str(log_id),
            int(seen),
            str(reason),
            int(size),
            int(at),
            str(by),
        )
        for name, partition, offset, log_id, seen, reason, size, at, by in rows
    ]


def letters_at(store: Store, place: LetterPlace) -> list[StoredLetter]:
    """The letters at a place: none, one, or one for each log that had the topic's name."""
    named = {"topic": place.topic, "partition": place.partition, "offset": place.offset}
    return [
        StoredLetter(
            place, str(log_id), int(seen), str(reason), bytes.fromhex(key), bytes.fromhex(payload), int(at), str(by)
        )
        for _, _, _, log_id, seen, reason, key, payload, at, by in store.rows(_QUERIES["letter"].sql, named)
    ]


def open_letters(store: Store) -> int:
    """How many letters nobody has re-driven."""
    return int(store.rows(_QUERIES["open_letters"].sql)[0][0])


def mark(store: Store, letter: StoredLetter, done: Mark) -> None:
    """Say that a letter was re-driven.

    However often that was done, and by however many at once: what stays is the first place, for what it states is on
    record from there.
    """
    _insert(store, letter, done)
    named = {**letter.place._asdict(), "log_id": letter.log_id}
    partition, offset = (int(number) for number in store.rows(_QUERIES["marks"].sql, named)[0])
    if (partition, offset) != (done.to_partition, done.to_offset):
        _insert(store, letter, replace(done, to_partition=partition, to_offset=offset))


def block_on_record(store: Store, payload: bytes) -> tuple[int, int] | None:
    """Partition and offset from which the block of a message is on record; None if it is not, or is no block."""
    try:
        block = decode_block(payload)
    except CorruptBlock:
        return None
    named = {"copy_id": block.copy_id, "epoch": block.epoch, "first_seq": block.first_seq}
    found = store.rows(_QUERIES["block_on_record"].sql, {**named, "hash_hex": block.block_hash.hex().upper()})
    return (int(found[0][0]), int(found[0][1])) if found else None


def _insert(store: Store, letter: StoredLetter, done: Mark) -> None:
    row = {
        "topic": pa.array([letter.place.topic]),
        "log_partition": pa.array([letter.place.partition], pa.uint16()),
        "log_offset": pa.array([letter.place.offset], pa.uint64()),
        "log_id": pa.array([letter.log_id]),
        "redriven_at": pa.array([done.redriven_us], pa.timestamp("us", "UTC")),
        "by": pa.array([done.by]),
        "repaired": pa.array([done.repaired]),
        "to_partition": pa.array([done.to_partition], pa.uint16()),
        "to_offset": pa.array([done.to_offset], pa.uint64()),
    }
    store.insert("redriven", pa.table(row))
