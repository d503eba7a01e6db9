"""A letter goes back to the log only as what its reader reads, and to where it stood."""

from __future__ import annotations

import pytest

from aggregator.dead_letters.letters import LetterPlace, StoredLetter, place_of
from aggregator.dead_letters.redrive import Unreadable, redrive
from stream.contract.codec import encode_block
from stream.contract.control import CopyStarted, encode_control
from stream.contract.topics import CONTROL, DECISIONS
from tests.recordblocks import MIDNIGHT_US

_BLOCK = encode_block([], copy_id="gw-1", epoch=7, first_seq=0, sealed_at_us=MIDNIGHT_US, clock_offset_ns=0)
_STARTED = encode_control(CopyStarted(copy_id="gw-1", epoch=7, at_us=MIDNIGHT_US))


class _Log:
    """Keeps what is put."""

    def __init__(self) -> None:
        self.put_there: list[tuple[str, int, bytes, bytes]] = []

    def put(self, topic: str, partition: int, key: bytes, value: bytes) -> int:
        self.put_there.append((topic, partition, key, value))
        return 42


def _letter(topic: str, payload: bytes) -> StoredLetter:
    return StoredLetter(LetterPlace(topic, 3, 9), "id", MIDNIGHT_US, "once unreadable", b"gw-1", payload, 0, "")


@pytest.mark.parametrize(("topic", "payload"), [(DECISIONS.name, _BLOCK), (CONTROL.name, _STARTED)])
def test_redrive_puts_the_same_bytes_back_once_the_reader_reads_them(topic: str, payload: bytes) -> None:
    """R20, after a reader was corrected: the key and the partition are its own, so its copy's order is kept."""
    log = _Log()
    assert 42 == redrive(log, _letter(topic, payload), payload, now_us=MIDNIGHT_US)
    assert [(topic, 3, b"gw-1", payload)] == log.put_there


@pytest.mark.parametrize(
    ("topic", "payload", "said"),
    [
        (DECISIONS.name, _BLOCK[:-3], "block_bytes"),
        (DECISIONS.name, b"", "block"),
        (CONTROL.name, b"{}", "kind"),
        ("tallygate.elsewhere", _BLOCK, "tallygate.elsewhere"),
    ],
)
def test_redrive_refuses_what_would_be_set_aside_again(topic: str, payload: bytes, said: str) -> None:
    """A letter that is marked and comes back is an operator's time lost, and a count that fell for nothing."""
    log = _Log()
    with pytest.raises(Unreadable, match=said):
        redrive(log, _letter(topic, payload), payload, now_us=MIDNIGHT_US)
    assert [] == log.put_there


def test_place_is_read_as_it_is_written() -> None:
    """It is copied from the recorder's log."""
    place = LetterPlace(DECISIONS.name, 0, 2**62)
    assert place == place_of(str(place))


@pytest.mark.parametrize("text", ["", "t", "t[0]", "t[x]@1", "t[65536]@1", "a b[0]@1", "t[0]@1 "])
def test_place_of_says_what_a_place_looks_like(text: str) -> None:
    """A wrong call names what is allowed."""
    with pytest.raises(ValueError, match=r"allowed: topic\[partition\]@offset"):
        place_of(text)
