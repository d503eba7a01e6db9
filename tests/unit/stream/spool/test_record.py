"""The bytes of the spool's files: read back as they were written, and cut where they are torn."""

from __future__ import annotations

import dataclasses
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enforcer.identity import CopyIdentity
from stream.buffer import Loss
from stream.outbox import Letter
from stream.spool.record import encode_record, read_records
from tests.unit.stream.spool.letters import block, blocks

_LETTERS = st.builds(
    Letter,
    topic=st.sampled_from(["tallygate.decisions", "tallygate.grants"]),
    key=st.binary(max_size=9),
    value=st.binary(max_size=300),
    headers=st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=5)), max_size=3),
    partition=st.none() | st.integers(0, 9_999),
    first_seq=st.integers(0, 2**63 - 1),
    decisions=st.integers(0, 65_536),
    facts=st.integers(0, 2_000),
    loss=st.none() | st.builds(Loss, st.integers(0, 2**63 - 1), st.integers(1, 2**63 - 1), st.text(max_size=9)),
)


def fields(letter: Letter) -> dict[str, object]:
    return dataclasses.asdict(letter)


@given(st.lists(_LETTERS, max_size=5))
def test_letters_are_read_back_as_they_were(letters: list[Letter]) -> None:
    """A predecessor's messages go out byte for byte."""
    data = b"".join(map(encode_record, letters))
    assert list(map(fields, letters)) == [fields(read.letter) for read in read_records(data)]


def test_torn_tail_is_cut_at_every_byte_of_the_last_record() -> None:
    """A kill or a power failure may end anywhere: everything before it ships."""
    whole = b"".join(map(encode_record, blocks(2)))
    for length in range(len(whole), len(whole + encode_record(block(10)))):
        torn = (whole + encode_record(block(10)))[:length]
        assert [0, 5] == [read.letter.first_seq for read in read_records(torn)]
        assert len(whole) == list(read_records(torn))[-1].end


@pytest.mark.parametrize("tail", [bytes(64), b"\xff" * 64, b"\x00\x00\x00\x01" * 16])
def test_tail_that_never_reached_the_disk_is_no_record(tail: bytes) -> None:
    """File systems leave zeros, or what was there before."""
    data = encode_record(block(0)) + tail
    assert [0] == [read.letter.first_seq for read in read_records(data)]


def test_altered_record_ends_the_reading() -> None:
    """What a disk has changed must not reach the log as if a copy had said it."""
    data = bytearray(b"".join(map(encode_record, blocks(3))))
    data[len(data) // 2] ^= 1
    assert [0] == [read.letter.first_seq for read in read_records(bytes(data))]


def test_record_of_another_shape_is_none() -> None:
    """The check sum is right, the content is not ours."""
    body = b"\x93\x01\x02\x03"
    assert [] == list(read_records(struct.pack("<II", len(body), zlib.crc32(body)) + body))


def test_letters_of_a_dead_copy_say_whose_they_are() -> None:
    """They must never be counted, or spooled, as this copy's own."""
    dead = CopyIdentity("gw-1", 7)
    (read,) = read_records(encode_record(block(0)), at=8, heir_of=dead)
    assert (dead, 8, 8 + len(encode_record(block(0)))) == (read.letter.heir_of, read.at, read.end)
