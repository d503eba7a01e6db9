"""The codec of decision blocks: what goes in comes out, and what is damaged never does."""

from __future__ import annotations

import random
import struct
import zlib

import numpy as np
import pytest

from enforcer.types import MAX_RETRY_MS, Plan, Reason, Source, Verdict, outcome_code
from stream.contract import layout
from stream.contract.codec import NO_HASH, BlockEncoder, CorruptBlock, UnencodableBlock, decode_block, encode_block
from tests.verdicts import IDENTITY, basis, expected_rows, rows, verdict, verdicts

OFFSET_NS = 1_794_991_556_000_000_000


def encode(taken: list[Verdict], *, first_seq: int | None = None, prev_hash: bytes = NO_HASH) -> bytes:
    start = first_seq if first_seq is not None else taken[0].seq if taken else 0
    return encode_block(
        taken,
        copy_id=IDENTITY.copy_id,
        epoch=IDENTITY.epoch,
        first_seq=start,
        sealed_at_us=1_795_991_560_000_000,
        clock_offset_ns=OFFSET_NS,
        prev_hash=prev_hash,
    )


def mixed(count: int) -> list[Verdict]:
    """Decisions over several bases, one in seven refused."""
    plans = [Plan("free", 1.5, 3), Plan("large", 20_000.0, 40_000)]
    bases = [
        basis(f"acct-{number % 11}", f"scope {number % 3}", plan=plans[number % 2], grant_id=10**15 + number)
        for number in range(40)
    ]
    refused = outcome_code(Source.SHARED, Reason.SPENT)
    return [
        verdict(
            seq,
            on=bases[seq * 7 % 40],
            code=refused if seq % 7 == 0 else 0,
            remaining=seq * 13 % 70_000 - 5,
            retry_after_ms=seq * 3 - 1 if seq % 7 == 0 else 0,
        )
        for seq in range(count)
    ]


def resealed(data: bytes, at: int, new: bytes) -> bytes:
    """Bytes replaced and the check value made right again: what damage could not do, but a faulty writer could."""
    changed = data[:at] + new + data[at + len(new) :]
    crc = zlib.crc32(changed[layout.CRC_END :], zlib.crc32(changed[: layout.CRC_AT]))
    return changed[: layout.CRC_AT] + crc.to_bytes(4, "little") + changed[layout.CRC_END :]


def field_at(name: str) -> int:
    """Where a field of the header stands."""
    codes = ""
    for field in layout.HEADER_FIELDS:
        if field.name == name:
            return struct.calcsize("<" + codes)
        codes += field.code
    raise KeyError(name)


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 255, 257, 2_000, 65_536])
def test_block_of_any_size_comes_back_as_it_was(count: int) -> None:
    """The record is what is billed and disputed: not one field of one decision may change on the way."""
    taken = mixed(count)
    assert expected_rows(taken, clock_offset_ns=OFFSET_NS) == rows(decode_block(encode(taken)))


def test_header_says_whose_block_it_is_and_what_stands_before_it() -> None:
    """Gaps, order and tampering are found by these fields alone."""
    first = encode(verdicts(3))
    second = decode_block(encode(verdicts(2, first_seq=3), prev_hash=decode_block(first).block_hash))
    assert (IDENTITY.copy_id, IDENTITY.epoch, 3, 2) == (second.copy_id, second.epoch, second.first_seq, second.count)
    assert 1_795_991_560_000_000 == second.sealed_at_us
    assert decode_block(first).block_hash == second.prev_hash
    assert NO_HASH == decode_block(first).prev_hash


def test_heartbeat_is_an_empty_block_that_names_the_next_seq() -> None:
    """An idle copy must be told apart from a dead one."""
    block = decode_block(encode([], first_seq=500))
    assert (500, 0, 0) == (block.first_seq, block.count, len(block.bases.caller))


def test_identity_is_three_fields_and_never_one_string() -> None:
    """R4: copy "a-b" with seq of "c" and copy "a" with seq of "b-c" are two decisions."""
    first, second = (
        decode_block(
            encode_block(
                [verdict(seq)], copy_id=copy_id, epoch=epoch, first_seq=seq, sealed_at_us=1, clock_offset_ns=OFFSET_NS
            )
        )
        for copy_id, epoch, seq in (("a-1", 2, 3), ("a", 12, 3))
    )
    assert ("a-1", 2, 3) == (first.copy_id, first.epoch, first.first_seq)
    assert ("a", 12, 3) == (second.copy_id, second.epoch, second.first_seq)


def test_equal_names_in_different_objects_are_listed_once() -> None:
    """A caller that was forgotten and came back must not appear as two."""
    twice = [verdict(seq, on=basis("".join(["acct", "-", str(seq % 2)]))) for seq in range(30)]
    block = decode_block(encode(twice))
    assert ["acct-0", "acct-1"] == sorted(block.bases.callers)
    assert expected_rows(twice, clock_offset_ns=OFFSET_NS) == rows(block)


def test_bases_of_a_long_block_stay_apart() -> None:
    """The encoder finds equal bases by their address; two that look alike there must not merge two callers."""
    many = [verdict(seq, on=basis(f"acct-{seq}")) for seq in range(30_000)]
    block = decode_block(encode(many))
    assert [f"acct-{seq}" for seq in range(30_000)] == [block.bases.callers[i] for i in block.bases.caller[block.basis]]


def test_one_encoder_gives_the_same_bytes_as_a_fresh_one() -> None:
    """What a block says must not depend on the blocks before it."""
    encoder = BlockEncoder()
    for taken in (mixed(500), verdicts(20, first_seq=9), mixed(500)):
        again = encoder.encode(
            taken,
            copy_id=IDENTITY.copy_id,
            epoch=IDENTITY.epoch,
            first_seq=taken[0].seq,
            sealed_at_us=1_795_991_560_000_000,
            clock_offset_ns=OFFSET_NS,
        )
        assert encode(taken) == again


@pytest.mark.parametrize("told_ms", [2**31 - 1, 2**31, MAX_RETRY_MS])
def test_a_wait_of_more_than_the_column_holds_is_recorded_as_the_longest(told_ms: int) -> None:
    """The client of a monthly quota is told the truth; the record says "24.8 days or more" instead of losing it."""
    block = decode_block(encode([verdict(0, code=1, retry_after_ms=told_ms)], first_seq=0))
    assert [2**31 - 1] == block.retry_after_ms.tolist()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ([verdict(0, cost=-1)], "cost is -1"),
        ([verdict(0, cost=2**32)], "cost is 4294967296"),
        (
            [verdict(0), verdict(1, cost=2**70)],
            "cost is 1180591620717411303424; allowed: an integer of at most 64 bits",
        ),
        ([verdict(0, remaining=2**63)], "remaining is 9223372036854775808; allowed: an integer of at most 64 bits"),
        (
            [verdict(0), verdict(1, remaining=2**63)],
            "remaining is 9223372036854775808; allowed: an integer of at most 64 bits",
        ),
        ([verdict(0, on=basis(k=-1))], "k is -1"),
        ([verdict(0, on=basis(grant_id=2**63))], "grant_id is 9223372036854775808"),
        ([verdict(0, on=basis(policy_version=2**32))], "policy_version is 4294967296"),
        ([verdict(0, at_ns=-(10**19))], "at most 64 bits"),
        ([verdict(0, at_ns=-(2 * 10**18))], "wall time is outside"),
        ([verdict(0, on=basis("bad \ud800"))], "UTF-8"),
        ([verdict(0), verdict(2)], "without gaps"),
        ([verdict(1)], "without gaps"),
    ],
)
def test_verdict_without_room_in_the_log_is_refused_by_name(wrong: list[Verdict], said: str) -> None:
    """Saturating in silence would falsify the record; the copy names such a decision as lost instead."""
    with pytest.raises(UnencodableBlock, match=said):
        encode(wrong, first_seq=0)


def test_too_many_decisions_are_refused() -> None:
    """Readers size their memory by the limit."""
    with pytest.raises(UnencodableBlock, match="65537 decisions"):
        encode(verdicts(65_537))


def test_truncation_at_any_byte_is_named() -> None:
    """A torn message must become a dead letter, not half a block."""
    data = encode(mixed(40))
    for length in range(len(data)):
        with pytest.raises(CorruptBlock):
            decode_block(data[:length])
    with pytest.raises(CorruptBlock, match="block_bytes"):
        decode_block(data + b"\0")


def test_any_flipped_bit_is_found() -> None:
    """A wrong number that looks right is worse than none."""
    data = encode(mixed(40))
    for at in range(len(data)):
        for bit in (0, 3, 7):
            flipped = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
            with pytest.raises(CorruptBlock):
                decode_block(flipped)


@pytest.mark.parametrize(
    ("field", "new", "said"),
    [
        ("magic", b"XXXX", "magic is b'XXXX'"),
        ("version", b"\x04\0", "version is 4; allowed: 1, 2, 3"),
        ("decisions", b"\xff\xff\xff\xff", "decisions is 4294967295"),
        ("decisions", b"\x2f\0\0\0", "needs|holds|stand after|name"),
        ("bases", b"\xff\xff\xff\x7f", "bases is 2147483647"),
        ("bases", b"\0\0\0\0", "bases is 0"),
        ("callers", b"\xff\0\0\0", "callers is 255"),
        ("plans", b"\x03\0\0\0", "plans is 3; the names hold 2"),
        ("refusals", b"\xff\0\0\0", "refusals is 255"),
        ("names_bytes", b"\xff\xff\xff\xff", "names needs 4294967295 bytes"),
        ("copy_id_bytes", b"\0\0", "copy_id_bytes is 0"),
        ("copy_id_bytes", b"\xff\xff", "copy_id_bytes is 65535"),
        ("first_seq", b"\xff" * 8, "first_seq is 18446744073709551615"),
        ("first_at_us", b"\xff" * 8, "first_at_us is -1"),
        ("first_at_us", b"\xff" * 6 + b"\x1f\0", "at_us reaches"),
        ("sealed_at_us", b"\0" * 7 + b"\x7f", "sealed_at_us is"),
        ("owner_offset_us", b"\0" * 7 + b"\x7f", "owner_offset_us is"),
        (
            "admitted_total",
            b"\x21" + b"\0" * 7,
            "admitted_total is 33 and refused_total 6; allowed: at least .* 34 and 6",
        ),
        ("refused_total", b"\x05" + b"\0" * 7, "refused_total 5; allowed: at least .* 34 and 6"),
        ("admitted_total", b"\x23" + b"\0" * 7, "allowed: together up to 40"),
    ],
)
def test_header_that_cannot_be_true_is_named(field: str, new: bytes, said: str) -> None:
    """A faulty writer with a right check value must not make a reader crash, allocate gigabytes, or believe it."""
    data = encode(mixed(40))
    with pytest.raises(CorruptBlock, match=said):
        decode_block(resealed(data, field_at(field), new))


@pytest.mark.parametrize("column", [column.name for column in layout.COLUMNS])
def test_column_out_of_range_is_named(column: str) -> None:
    """An index past its list would crash the reader far from here, or be counted for the wrong caller."""
    number = [one.name for one in layout.COLUMNS].index(column)
    data = encode(mixed(40))
    at = layout.HEADER.size + 9 * number
    bad_base = 2**63 - 1 if column in {"remaining", "grant_id"} else -(2**63)
    with pytest.raises(CorruptBlock, match=column):
        decode_block(resealed(data, at + 1, bad_base.to_bytes(8, "little", signed=True)))
    with pytest.raises(CorruptBlock, match=f"width of column {column} is 9"):
        decode_block(resealed(data, at, b"\x09"))


def test_unknown_outcome_is_named() -> None:
    """A code of a later version must stop the reader, not be counted as something else."""
    data = encode(verdicts(4))
    number = [one.name for one in layout.COLUMNS].index("code")
    at = layout.HEADER.size + 9 * number + 1
    for code in (0x40, 0x90):
        with pytest.raises(CorruptBlock, match=f"code holds {code}; no such source and reason"):
            decode_block(resealed(data, at, bytes([code])))


def test_arbitrary_bytes_never_crash_the_reader() -> None:
    """The topic may hold anything; whatever it is, it becomes a dead letter with a reason."""
    random_bytes = random.Random(1)
    data = encode(mixed(300))
    for _ in range(3_000):
        changed = bytearray(data)
        for _ in range(random_bytes.randint(1, 4)):
            changed[random_bytes.randrange(layout.CRC_END, len(data))] = random_bytes.randrange(256)
        try:
            block = decode_block(resealed(bytes(changed), 0, layout.MAGIC))
        except CorruptBlock:
            continue
        assert block.count == len(block.basis)
        assert not block.count or block.basis.max() < len(block.bases.caller)
        assert not block.count or block.bases.caller.max() < len(block.bases.callers)
        assert np.isin(block.code & 15, range(6)).all()
