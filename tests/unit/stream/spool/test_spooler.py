"""When letters go to disk and when they come back; what happens while the disk hangs, is full or forgets."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from enforcer.identity import CopyIdentity
from stream.config import StreamConfig
from stream.fault_log import FaultLog
from stream.outbox import Outbox
from stream.sealing import Sealer
from stream.spool import store as store_module
from stream.spool.folder import make_folder
from stream.spool.spooler import SPILL_AFTER_S, Spooler
from stream.spool.store import SpoolStore
from tests.inline_worker import InlineWorker
from tests.unit.stream.spool.letters import block, blocks
from tests.verdicts import IDENTITY, grant

_T = TypeVar("_T")


class HangingWorker(InlineWorker):
    """A disk that does not answer while `hangs`."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs = False
        self._given: Callable[[], None] | None = None

    @property
    def is_busy(self) -> bool:
        return self._given is not None or super().is_busy

    def submit(self, job: Callable[[], _T], then: Callable[[_T], None]) -> None:
        start = super().submit
        self._given = lambda: start(job, then)

    def settle(self, wait_s: float = 0.0) -> None:
        if self.hangs:
            return
        given, self._given = self._given, None
        if given is not None:
            given()
        super().settle(wait_s)


class Rig:
    """An outbox with a spool that keeps few letters ready."""

    def __init__(self, root: Path, *, ready: int = 3, max_bytes: int = 100_000) -> None:
        self.outbox = Outbox()
        self.worker = HangingWorker()
        folder = make_folder(root, CopyIdentity("gw-1", 7), bootstrap="kafka:9092")
        self.store = SpoolStore(folder, max_bytes=max_bytes, keep_free=0)
        self.lost: list[tuple[list[tuple[int, int]], int]] = []
        self.spooler = Spooler(
            StreamConfig(max_held=1_000),
            self.outbox,
            self.store,
            self.worker,
            on_unreadable=lambda seqs, facts: self.lost.append((seqs, facts)),
            ready_letters=ready,
        )
        self.now_s = 100.0

    def turn(self, count: int = 1, *, in_trouble: bool = False, after_s: float = 0.05) -> None:
        for _ in range(count):
            self.now_s += after_s
            self.worker.settle()
            self.spooler.turn(now_s=self.now_s, in_trouble=in_trouble, partitions=4)
        self.worker.settle()

    def deliver(self, count: int = 99) -> list[int]:
        """First seqs of what could be sent, in order."""
        sent = self.outbox.waiting(count)
        for number, _ in sent:
            self.outbox.remove(number)
        return [letter.first_seq for _, letter in sent]

    def put(self, count: int, *, first: int = 0) -> None:
        for letter in blocks(count + first)[first:]:
            self.outbox.put(letter)


def test_nothing_is_written_while_the_broker_takes_everything(tmp_path: Path) -> None:
    """The disk is for trouble: a healthy copy must not wear it out."""
    rig = Rig(tmp_path)
    for number in range(40):
        rig.outbox.put(block(number * 5))
        rig.turn()
        assert [number * 5] == rig.deliver()
    assert 0 == rig.store.bytes


def test_letter_that_nobody_acknowledges_is_written_in_two_seconds(tmp_path: Path) -> None:
    """Nobody has complained yet, but a kill now would cost it."""
    rig = Rig(tmp_path)
    rig.put(1)
    rig.turn(int(2 * SPILL_AFTER_S / 0.05) + 1)
    assert (5, 0) == (rig.spooler.decisions, rig.outbox.decisions)


def test_trouble_writes_at_once_and_memory_keeps_only_what_is_ready(tmp_path: Path) -> None:
    """An outage of hours must fit in memory."""
    rig = Rig(tmp_path)
    rig.put(10)
    rig.turn(2, in_trouble=True)
    assert (0, 50, 7, 3) == (rig.outbox.decisions, rig.spooler.decisions, rig.spooler.unread, len(rig.outbox))
    rig.put(10, first=10)
    rig.turn(2, in_trouble=True)
    assert (0, 100, 17, 3) == (rig.outbox.decisions, rig.spooler.decisions, rig.spooler.unread, len(rig.outbox))


def test_letters_come_back_in_order_and_new_ones_stay_behind_them(tmp_path: Path) -> None:
    """Live totals pass over a block that comes behind a later one."""
    rig = Rig(tmp_path)
    rig.put(10)
    rig.turn(2, in_trouble=True)
    delivered: list[int] = []
    for number in range(10, 20):
        rig.outbox.put(block(number * 5))
        rig.turn()
        delivered += rig.deliver(2)
    for _ in range(9):
        rig.turn()
        delivered += rig.deliver(2)
    assert [number * 5 for number in range(20)] == delivered
    rig.turn(2)
    assert (0, 0, 0) == (rig.spooler.decisions, rig.store.bytes, len(rig.outbox))


def test_copy_that_goes_on_fast_catches_up_with_its_disk(tmp_path: Path) -> None:
    """A busy copy has new letters in every round: after an outage it must not go over the disk for ever."""
    rig = Rig(tmp_path, ready=20)
    rig.put(40)
    rig.turn(2, in_trouble=True)
    assert rig.spooler.unread > 0
    delivered: list[int] = []
    for number in range(40, 60):
        rig.put(1, first=number)
        rig.turn()
        delivered += rig.deliver()
    assert [number * 5 for number in range(60)] == delivered
    assert (False, 0, 0) == (rig.outbox.is_diverted, rig.spooler.decisions, rig.store.bytes)


def test_file_goes_only_when_its_last_letter_is_delivered(tmp_path: Path) -> None:
    """Whatever happens before that, it is there."""
    rig = Rig(tmp_path, ready=9)
    rig.put(3)
    rig.turn(2, in_trouble=True)
    rig.deliver(2)
    rig.turn(3)
    assert rig.store.bytes > 0
    rig.deliver(1)
    rig.turn(2)
    assert 0 == rig.store.bytes


def test_hanging_disk_holds_up_neither_the_bound_nor_what_needs_no_disk(tmp_path: Path) -> None:
    """The memory's bound counts what only memory has; and Kafka may be back before the disk is."""
    rig = Rig(tmp_path)
    rig.worker.hangs = True
    rig.put(10)
    rig.turn(5, in_trouble=True)
    assert (50, 0) == (rig.outbox.decisions, rig.spooler.decisions)
    assert [number * 5 for number in range(10)] == rig.deliver()
    rig.worker.hangs = False
    rig.turn(3)
    assert (0, 0, 0) == (rig.outbox.decisions, rig.spooler.decisions, rig.store.bytes)


def test_disk_that_hangs_while_letters_wait_behind_lets_them_through(tmp_path: Path) -> None:
    """Facts waited for their partitions, and the disk hangs with them: once these are known, Kafka can have them."""
    rig = Rig(tmp_path)
    (facts,), _ = Sealer(IDENTITY, max_message_bytes=10**6, faults=FaultLog()).facts([grant()], partitions=None)
    rig.worker.hangs = True
    rig.outbox.divert()
    rig.outbox.put(facts)
    rig.put(3)
    rig.spooler.turn(now_s=rig.now_s, in_trouble=True, partitions=None)
    assert [] == rig.deliver()
    rig.turn(40)
    assert [0, 0, 5, 10] == rig.deliver()
    rig.worker.hangs = False
    rig.turn(5)
    assert (0, 0, 0) == (rig.outbox.decisions, rig.spooler.decisions, rig.store.bytes)


def test_full_disk_is_told_once_and_spooling_begins_again_with_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What finds no room waits in memory, where its bound counts it, and shipping goes on."""
    rig = Rig(tmp_path)

    def full(descriptor: int, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with caplog.at_level(logging.INFO, "tallygate.stream"):
        with monkeypatch.context() as patch:
            patch.setattr(store_module, "write_all", full)
            rig.put(5)
            rig.turn(60, in_trouble=True)
            assert (25, 0) == (rig.outbox.decisions, rig.spooler.decisions)
            assert [0] == rig.deliver(1)
        rig.turn(40, in_trouble=True)
    assert (0, 20) == (rig.outbox.decisions, rig.spooler.decisions)
    assert ["WARNING", "INFO"] == [record.levelname for record in caplog.records]
    assert "No space left on device" in caplog.records[0].getMessage()
    rig.turn(2)
    assert [5, 10, 15] == rig.deliver()


def test_what_the_disk_has_lost_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Somebody removed a file under a running copy: its seqs are lost, the others ship."""
    rig = Rig(tmp_path, max_bytes=8_000)
    rig.put(12)
    rig.turn(2, in_trouble=True)
    (tmp_path / "gw-1" / "7" / "0000000001.spool").unlink()
    delivered: list[int] = []
    for _ in range(12):
        delivered += rig.deliver()
        rig.turn(after_s=1.0)
    ((named, facts),) = rig.lost
    lost = [seq for first_seq, count in named for seq in range(first_seq, first_seq + count, 5)]
    assert [number * 5 for number in range(12)] == sorted(delivered + lost)
    assert (True, 0) == (bool(lost), facts)
    assert "what was in it is lost" in caplog.text
    rig.turn(2)
    assert (0, 0) == (rig.spooler.decisions, rig.store.bytes)
