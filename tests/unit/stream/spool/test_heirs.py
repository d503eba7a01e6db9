"""What dead copies left: found, said, shipped as it is, and removed only when it is delivered."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from enforcer.identity import CopyIdentity
from stream.contract.control import CopyStopped, encode_control
from stream.contract.topics import CONTROL
from stream.outbox import Letter, Outbox
from stream.spool.folder import make_folder, take_folder
from stream.spool.heirs import LOOK_EVERY_S, Heirs, find_left
from stream.spool.record import MAGIC, encode_record
from stream.spool.store import SpoolStore
from tests.inline_worker import InlineWorker
from tests.unit.stream.spool.letters import blocks

DEAD = CopyIdentity("gw-1", 7)
KAFKA = "kafka:9092"
STOPPED = Letter(CONTROL.name, b"k", encode_control(CopyStopped(copy_id="gw-1", epoch=7, at_us=1, next_seq=15)), [])


class Rig:
    """An heir with an outbox; every round everything in it is delivered, if wanted."""

    def __init__(self, root: Path, bootstrap: str = KAFKA) -> None:
        self.outbox = Outbox()
        self.worker = InlineWorker()
        self.said: list[tuple[CopyIdentity, int | None]] = []
        self.heirs = Heirs(root, bootstrap, self.outbox, self.worker, found=self._found)
        self.delivered: list[Letter] = []
        self.now_s = 0.0

    def _found(self, dead: CopyIdentity, next_seq: int | None) -> Letter:
        self.said.append((dead, next_seq))
        return Letter(CONTROL.name, b"k", b"found", [], heir_of=dead)

    def rounds(self, count: int, *, delivers: bool = True) -> list[bytes]:
        """The values that were delivered in these rounds."""
        before = len(self.delivered)
        for _ in range(count):
            self.worker.settle()
            if not self.worker.is_busy:
                self.heirs.turn(now_s=self.now_s, partitions=4)
            self.now_s += LOOK_EVERY_S
            for number, letter in list(self.outbox) if delivers else []:
                self.outbox.remove(number)
                self.delivered.append(letter)
        return [letter.value for letter in self.delivered[before:]]


def leave(root: Path, letters: list[Letter], identity: CopyIdentity = DEAD, *, bootstrap: str = KAFKA) -> Path:
    """A copy that was killed after it had spooled these."""
    folder = make_folder(root, identity, bootstrap=bootstrap)
    SpoolStore(folder, max_bytes=8_000, keep_free=0).write(letters)
    folder.release()
    return folder.path


def test_what_was_left_is_said_shipped_as_it_is_and_removed(tmp_path: Path) -> None:
    """Byte for byte, in order, under the old epoch; nothing of it is counted as this copy's own."""
    left = blocks(12)
    leave(tmp_path, left)
    rig = Rig(tmp_path)
    assert [b"found", *(letter.value for letter in left)] == rig.rounds(20)
    assert [(DEAD, 60)] == rig.said
    assert {DEAD} == {letter.heir_of for letter in rig.delivered}
    assert [letter.headers for letter in left] == [letter.headers for letter in rig.delivered[1:]]
    assert (0, 0, 0) == (rig.outbox.decisions, rig.outbox.bytes, rig.outbox.spooled_decisions)
    assert [] == list(tmp_path.iterdir())


def test_nothing_is_removed_before_its_delivery_is_reported(tmp_path: Path) -> None:
    """An heir that dies in the middle leaves all of it to the next."""
    path = leave(tmp_path, blocks(3))
    rig = Rig(tmp_path)
    assert [] == rig.rounds(10, delivers=False)
    assert 1 == len(rig.outbox)
    rig.rounds(1)
    assert [] == rig.rounds(10, delivers=False)
    assert 3 == len(rig.outbox)
    assert (path / "0000000000.spool").exists()
    assert take_folder(tmp_path, DEAD) is None
    rig.heirs.release()
    assert [b"found", *(letter.value for letter in blocks(3))] == Rig(tmp_path).rounds(20)


def test_copy_that_left_nothing_is_said_to_be_dead(tmp_path: Path) -> None:
    """Killed while all was well: only this says that its record has an open end."""
    leave(tmp_path, [])
    rig = Rig(tmp_path)
    assert [b"found"] == rig.rounds(9)
    assert [(DEAD, None)] == rig.said
    assert [] == list(tmp_path.iterdir())


def test_copy_killed_with_a_full_spool_leaves_its_end_in_doubt(tmp_path: Path) -> None:
    """What found no room was in memory alone: where the spool ends is not where the copy had got to."""
    folder = make_folder(tmp_path, DEAD, bootstrap=KAFKA)
    store = SpoolStore(folder, max_bytes=4 * len(encode_record(blocks(1)[0])), keep_free=0)
    assert store.write(blocks(12)).fault is not None
    folder.release()
    rig = Rig(tmp_path)
    assert len(rig.rounds(20)) > 1
    assert [(DEAD, None)] == rig.said
    assert [] == list(tmp_path.iterdir()), "nothing is damaged: what there was is shipped"


def test_spool_that_had_room_again_says_how_far_the_copy_had_got(tmp_path: Path) -> None:
    """Everything that waited is on disk then."""
    folder = make_folder(tmp_path, DEAD, bootstrap=KAFKA)
    store = SpoolStore(folder, max_bytes=8 * len(encode_record(blocks(1)[0])), keep_free=0)
    assert store.write(blocks(12)).fault is not None
    store.drop([0, 1, 2])
    assert store.write(blocks(12)[10:]).fault is None
    folder.release()
    rig = Rig(tmp_path)
    rig.rounds(20)
    assert [(DEAD, 60)] == rig.said


def test_copy_that_stopped_in_order_is_shipped_without_a_word(tmp_path: Path) -> None:
    """It ended as it should, while Kafka was away: nobody need be alarmed."""
    leave(tmp_path, [*blocks(3), STOPPED])
    rig = Rig(tmp_path)
    assert [*(letter.value for letter in blocks(3)), STOPPED.value] == rig.rounds(9)
    assert [] == rig.said


def test_torn_tail_costs_only_itself(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """That is what a kill looks like: no alarm, and everything before it ships."""
    path = leave(tmp_path, blocks(3)) / "0000000000.spool"
    path.write_bytes(path.read_bytes()[:-1])
    assert [b"found", *(letter.value for letter in blocks(2))] == Rig(tmp_path).rounds(9)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_damage_in_the_middle_is_told_and_the_rest_ships(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A disk that forgets is an alarm; the gap in the seqs says what is missing."""
    path = leave(tmp_path, blocks(12)) / "0000000000.spool"
    data = bytearray(path.read_bytes())
    data[len(MAGIC) + len(encode_record(blocks(1)[0])) + 20] ^= 1
    path.write_bytes(data)
    shipped = [letter.first_seq for letter in Rig(tmp_path).delivered]
    rig = Rig(tmp_path)
    rig.rounds(20)
    shipped = [letter.first_seq for letter in rig.delivered if letter.decisions]
    assert (0, 55) == (shipped[0], shipped[-1])
    assert 5 not in shipped
    assert "are damaged" in caplog.text
    assert not path.parent.exists()
    assert (path.parent.with_name("7.damaged") / path.name).exists()
    assert [] == Rig(tmp_path).rounds(20)


@pytest.mark.parametrize("place", [3, 4, 20, 300])
def test_damage_costs_the_record_that_it_hits_wherever_it_is(place: int, tmp_path: Path) -> None:
    """Length, check sum or content: what stands behind it was whole and ships, in the last file as in any other."""
    path = leave(tmp_path, blocks(4)) / "0000000000.spool"
    data = bytearray(path.read_bytes())
    record = len(encode_record(blocks(1)[0]))
    data[len(MAGIC) + record + min(place, record - 1)] ^= 1
    path.write_bytes(data)
    rig = Rig(tmp_path)
    rig.rounds(20)
    assert [0, 10, 15] == [letter.first_seq for letter in rig.delivered if letter.decisions]
    assert [(DEAD, 20)] == rig.said


def test_damaged_end_leaves_it_open_how_far_the_copy_had_come(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A record that is all there and altered is no torn tail: to name an end before it would hide what it held."""
    path = leave(tmp_path, blocks(3)) / "0000000000.spool"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    rig = Rig(tmp_path)
    rig.rounds(20)
    assert [(DEAD, None)] == rig.said
    assert "are damaged" in caplog.text


@pytest.mark.parametrize("spoil", ["lock", "segment", "loop"])
def test_folder_that_cannot_be_read_holds_up_nobody_else(
    spoil: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One broken folder, of whomever, must not keep the record of all others from Kafka."""
    leave(tmp_path, blocks(2), CopyIdentity("gw-9", 9))
    broken = tmp_path / "aaa" / "0"
    broken.mkdir(parents=True)
    if spoil == "lock":
        (broken / "lock").mkdir()
    elif spoil == "segment":
        (broken / "lock").write_text(KAFKA)
        (broken / "0000000000.spool").mkdir()
    else:
        (tmp_path / "loop").symlink_to("loop")
    rig = Rig(tmp_path)
    rig.rounds(20)
    assert [0, 5] == [letter.first_seq for letter in rig.delivered if letter.decisions]
    assert (spoil != "loop") == ("is left alone" in caplog.text)


def test_longest_dead_is_shipped_first_and_one_at_a_time(tmp_path: Path) -> None:
    """Whose record ends first is missed first; and what is held back stays little."""
    leave(tmp_path, [replace(one, value=b"new") for one in blocks(2)], CopyIdentity("gw-1", 9))
    leave(tmp_path, [replace(one, value=b"old") for one in blocks(2)], CopyIdentity("gw-2", 8))
    assert [b"found", b"old", b"old", b"found", b"new", b"new"] == Rig(tmp_path).rounds(20)


def test_letters_for_another_log_stay_where_they_are(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Two systems share the machine: one's record must not go to the other's log. It is said once."""
    path = leave(tmp_path, blocks(1), bootstrap="elsewhere:9092")
    rig = Rig(tmp_path)
    assert [] == rig.rounds(9)
    assert 1 == caplog.text.count("is left alone: it is for Kafka at elsewhere:9092")
    assert path.exists()
    assert find_left(tmp_path, bootstrap="elsewhere:9092", without=set()) is not None


def test_files_of_a_later_version_stay_where_they_are(tmp_path: Path) -> None:
    """An older release in the same folder must not throw away what it cannot read."""
    path = leave(tmp_path, blocks(1)) / "0000000000.spool"
    path.write_bytes(b"TGSPOOL\x02" + path.read_bytes()[8:])
    assert [] == Rig(tmp_path).rounds(9)
    assert path.exists()


def test_file_that_vanishes_in_the_middle_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Somebody cleans up: the rest still ships, and what could not be read is left to be looked at."""
    path = leave(tmp_path, blocks(12))
    rig = Rig(tmp_path)
    rig.rounds(2)
    (path / "0000000001.spool").unlink()
    rig.rounds(20)
    assert "cannot be read any more" in caplog.text
    assert (0, 55) == (rig.delivered[1].first_seq, rig.delivered[-1].first_seq)
    assert path.with_name("7.damaged").exists()
