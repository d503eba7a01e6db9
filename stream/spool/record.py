"""The bytes of a file of the spool: one record a letter, each with its length and its check sum.

A file is `MAGIC`, then records of ``length u32 · crc32 u32 · body``, little-endian; the crc is of the body, which is
MessagePack. Whatever stands behind the last whole record is a torn tail: nobody was told that it is safe. Pure.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from enforcer.identity import CopyIdentity
from stream.buffer import Loss
from stream.outbox import Letter

#: The last byte is the version.
MAGIC: Final = b"TGSPOOL\x01"
_HEAD: Final = struct.Struct("<II")
HEAD_BYTES: Final = _HEAD.size
#: No letter is longer: the longest value is 8 MiB, and the rest of a letter is small.
MAX_BODY: Final = 16 * 1024 * 1024
#: What the names of all our topics begin with, the bytes of MessagePack before a name, and the first of them.
_TOPICS_BEGIN: Final = b"tallygate."
_BEFORE_TOPIC: Final = 2
_ARRAY_OF_NINE: Final = 0x99


class _Body(msgspec.Struct, frozen=True, array_like=True):
    topic: str
    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]
    partition: int | None
    first_seq: int
    decisions: int
    facts: int
    loss: tuple[int, int, str] | None


class Read(NamedTuple):
    """A letter, and the bytes of the file at which its record begins and ends."""

    letter: Letter
    at: int
    end: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Body)


def encode_record(letter: Letter) -> bytes:
    """The record of a letter."""
    loss = letter.loss
    body = _encoder.encode(
        _Body(
            letter.topic,
            letter.key,
            letter.value,
            letter.headers,
            letter.partition,
            letter.first_seq,
            letter.decisions,
            letter.facts,
            None if loss is None else (loss.first_seq, loss.count, loss.cause),
        )
    )
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def read_records(
    data: bytes | memoryview, *, at: int = 0, heir_of: CopyIdentity | None = None, past_damage: bool = False
) -> Iterator[Read]:
    """The letters of whole records, in order, up to the first that is torn, cut or altered.

    Args:
        data: bytes of a file, from a record's beginning on.
        at: where in the file they begin.
        heir_of: the dead copy whose they are, if it is not this one.
        past_damage: go on with the next whole record behind one that is none; what lies between two letters that
            follow each other was lost.
    """
    view = memoryview(data)
    start: int | None = 0
    while start is not None:
        read = _read_at(view, start, heir_of)
        if read is not None:
            yield Read(read.letter, at + read.at, at + read.end)
            start = read.end
        else:
            start = _next_record(data, view, start + 1) if past_damage else None


def is_torn(tail: bytes | memoryview) -> bool:
    """Whether bytes behind the last whole record may be what a kill leaves of one that was being written.

    A record that is all there and does not fit its check sum was whole once.
    """
    length = record_bytes(bytes(tail[:HEAD_BYTES]))
    return length is None or length > len(tail)


def _read_at(view: memoryview, start: int, heir_of: CopyIdentity | None) -> Read | None:
    if start + HEAD_BYTES > len(view):
        return None
    length, crc = _HEAD.unpack_from(view, start)
    end = start + HEAD_BYTES + length
    body = view[start + HEAD_BYTES : end]
    # A length of zero is what a file system leaves of a tail that never reached the disk.
    if not 0 < length <= MAX_BODY or end > len(view) or zlib.crc32(body) != crc:
        return None
    letter = _letter(body, heir_of)
    return None if letter is None else Read(letter, start, end)


def _next_record(data: bytes | memoryview, view: memoryview, start: int) -> int | None:
    """Where the next whole record begins: its body is an array of nine that begins with the name of a topic of ours."""
    searched = bytes(data)
    while True:
        found = searched.find(_TOPICS_BEGIN, start + HEAD_BYTES)
        if found < 0:
            return None
        begins = found - _BEFORE_TOPIC - HEAD_BYTES
        if begins >= start and view[begins + HEAD_BYTES] == _ARRAY_OF_NINE and _read_at(view, begins, None):
            return begins
        start = found - HEAD_BYTES + 1


def record_bytes(head: bytes) -> int | None:
    """How long a record is that begins so; None if these are no record's first bytes."""
    if len(head) < HEAD_BYTES:
        return None
    length = int(_HEAD.unpack_from(head)[0])
    return HEAD_BYTES + length if 0 < length <= MAX_BODY else None


def _letter(body: memoryview, heir_of: CopyIdentity | None) -> Letter | None:
    try:
        kept = _decoder.decode(body)
    except msgspec.DecodeError:
        return None
    return Letter(
        kept.topic,
        kept.key,
        kept.value,
        kept.headers,
        kept.partition,
        kept.first_seq,
        kept.decisions,
        kept.facts,
        None if kept.loss is None else Loss(*kept.loss),
        heir_of,
    )
