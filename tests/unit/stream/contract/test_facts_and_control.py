"""Grants, settlements and control events: strict on what is read, exact on what is written."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from enforcer.sink import GrantIssued
from enforcer.types import Grant
from stream.contract.codec import CorruptBlock, UnencodableBlock
from stream.contract.control import Anchor, CopyFound, CopyStarted, DecisionsLost, decode_control, encode_control
from stream.contract.facts import decode_facts, encode_facts
from stream.contract.partition import grants_partition
from tests.verdicts import IDENTITY, grant, settlement

FACTS = encode_facts(IDENTITY, [grant()], [settlement()])
ANCHOR = Anchor(copy_id="gw-017", epoch=IDENTITY.epoch, at_us=5, next_seq=3, head="00ff" * 8, blocks=1)
FOUND = CopyFound(copy_id="gw-017", epoch=IDENTITY.epoch, at_us=5, by=7, next_seq=None)
LOSS = DecisionsLost(copy_id="gw-017", epoch=IDENTITY.epoch, at_us=5, first_seq=100, count=30, cause="x")


def facts_with(place: int, value: Any) -> bytes:
    """The facts message with one of its six parts replaced."""
    parts = msgspec.msgpack.decode(FACTS)
    parts[place] = value
    return msgspec.msgpack.encode(parts)


def test_truncated_facts_are_named() -> None:
    """A torn message becomes a dead letter."""
    for length in range(len(FACTS)):
        with pytest.raises(CorruptBlock):
            decode_facts(FACTS[:length])
    with pytest.raises(CorruptBlock, match="trailing"):
        decode_facts(FACTS + b"\0")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "truncated"),
        (b"\xc1", "malformed"),
        (b"\xdd\xff\xff\xff\xff", "truncated"),
        (b"\x91" * 5_000, "length 2"),
        (facts_with(0, "other"), "kind is 'other'"),
        (facts_with(1, 3), "version is 3; allowed: 1, 2"),
        (facts_with(2, "no spaces"), r"\$\[2\]"),
        (facts_with(3, -1), r"\$\[3\]"),
        (facts_with(4, [["acct", "l", 1, -5, 2, 3, 4, 5, 1.0]]), r"\$\[4\]"),
        (facts_with(4, [["acct", "l", 2**32, 5, 2, 3, 4, 5, 1.0]]), r"\$\[4\]"),
        (facts_with(5, [["acct", "l", "m/1", 5, 2, True, 99, 5]]), r"99 - at .\$\[5\]"),
        (facts_with(5, [["acct", "l", "m/1", 5, 2, True, 0, 2**60]]), r"\$\[5\]"),
        (FACTS.replace(b"acct-1", b"acct-\xff"), "cannot be read"),
    ],
)
def test_facts_that_break_the_contract_are_named(data: bytes, said: str) -> None:
    """One wrong total would be believed by the ledger for ever."""
    with pytest.raises(CorruptBlock, match=said):
        decode_facts(data)


def test_fact_without_room_is_refused_by_the_writer() -> None:
    """What a reader would refuse must not reach the log."""
    negative = GrantIssued("acct-1", "per-second", 1, Grant(1, -1, 1, 1, 1), 0.0)
    with pytest.raises(UnencodableBlock, match=">= 0"):
        encode_facts(IDENTITY, [negative], [])


def test_control_event_is_plain_json() -> None:
    """An operator reads the control topic with any tool."""
    assert {
        "kind": "decisions_lost",
        "version": 1,
        "copy_id": "gw-017",
        "epoch": IDENTITY.epoch,
        "at_us": 5,
        "first_seq": 100,
        "count": 30,
        "cause": "x",
    } == msgspec.json.decode(encode_control(LOSS))
    assert "decisions_lost" == LOSS.kind == decode_control(encode_control(LOSS)).kind


def test_field_of_a_later_version_is_ignored() -> None:
    """Gateways and readers are not upgraded in the same second."""
    started = CopyStarted(copy_id="gw-017", epoch=1, at_us=2)
    data = encode_control(started).replace(b"{", b'{"color":"blue",', 1)
    assert started == decode_control(data)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "truncated"),
        (b"\xff\xfe", "malformed"),
        (b"[]", "Expected `object`"),
        (b"{}", "kind"),
        (b'{"kind":"copy_exploded"}', "copy_exploded"),
        (b'{"kind":"copy_started","copy_id":"a","epoch":1}', "at_us"),
        (encode_control(LOSS).replace(b'"version":1', b'"version":2'), "version"),
        (encode_control(LOSS).replace(b'"count":30', b'"count":0'), "count"),
        (encode_control(LOSS).replace(b'"count":30', b'"count":"30"'), "count"),
        (encode_control(LOSS).replace(b"gw-017", b"gw 017"), "copy_id"),
        (encode_control(LOSS).replace(str(IDENTITY.epoch).encode(), str(2**64).encode()), "epoch"),
        (encode_control(ANCHOR).replace(b"00ff", b"00FF"), "head"),
        (encode_control(ANCHOR).replace(b"00ff", b""), "head"),
        (encode_control(ANCHOR).replace(b'"blocks":1', b'"blocks":0'), "blocks"),
        (encode_control(FOUND).replace(b'"by":7', b'"by":' + str(2**64).encode()), "by is 18446744073709551616"),
        (encode_control(FOUND).replace(b"null", b"-1"), "next_seq"),
        (encode_control(LOSS)[:-1], "truncated"),
        (b"[" * 100_000, "cannot be read"),
    ],
)
def test_control_event_that_breaks_the_contract_is_named(data: bytes, said: str) -> None:
    """A loss record that is misread would hide a loss."""
    with pytest.raises(CorruptBlock, match=said):
        decode_control(data)


def test_partition_of_a_caller_never_changes() -> None:
    """Copies of different versions must agree; these values are the contract."""
    assert [1, 0, 0] == [grants_partition(caller, 4) for caller in ("acct-1", "été", "")]
    assert 0 <= grants_partition("\ud800", 4) < 4
