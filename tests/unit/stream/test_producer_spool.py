"""The sink with a spool: what a broker that is away does not take is on disk, and only what finds no room is lost."""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from pathlib import Path

import pytest

from enforcer.identity import CopyIdentity
from stream.buffer import OVERFLOW
from stream.config import StreamConfig
from stream.contract.codec import decode_block
from stream.contract.control import Anchor, CopyFound, CopyStarted, CopyStopped, DecisionsLost, decode_control
from stream.contract.facts import decode_facts
from stream.contract.topics import CONTROL, DECISIONS, GRANTS
from stream.producer import KafkaSink
from stream.shipper import Shipper
from stream.spool import store
from stream.spool.spool import Spool
from tests.inline_worker import InlineWorker
from tests.processes import wait_until
from tests.unit.stream.fake_producer import FakeProducer
from tests.unit.stream.test_producer import Rig
from tests.verdicts import IDENTITY, grant, settlement, verdicts

NEXT = CopyIdentity("gw-next", IDENTITY.epoch + 1)


def config(root: Path, *, max_held: int = 1_000_000, max_bytes: int = 10**9) -> StreamConfig:
    return StreamConfig(
        flush_s=0.05,
        block_decisions=10,
        max_held=max_held,
        spool_dir=root,
        spool_max_bytes=max_bytes,
        spool_keep_free_bytes=0,
    )


def heir(root: Path) -> tuple[KafkaSink, list[dict[str, object]]]:
    """Another copy, whose broker takes everything; and what it took, in order."""
    taken: list[dict[str, object]] = []

    def make(settings: dict[str, object]) -> FakeProducer:
        producer = FakeProducer(settings, delivers=True)
        producer.delivered = taken
        return producer

    return KafkaSink(config(root), NEXT, make_producer=make), taken


def files(root: Path) -> list[str]:
    return sorted(path.name for path in root.rglob("*.spool"))


def values(taken: list[dict[str, object]], topic: str) -> list[bytes]:
    return [value for one in taken if one["topic"] == topic and isinstance(value := one["value"], bytes)]


def test_close_with_the_broker_away_loses_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A rolling restart in an outage: the next copy ships it all, facts and stop included, under the old epoch."""
    rig = Rig(config(tmp_path), is_away=True)
    for one in verdicts(25):
        rig.sink.capture(one)
    rig.sink.grant_issued(grant())
    rig.sink.grant_settled(settlement())
    rig.sink.close(2.0)
    stats = rig.sink.stats
    assert (25, 0, 0, 25, 25, 0) == (
        stats.captured,
        stats.delivered,
        stats.lost,
        stats.queued,
        stats.spooled,
        stats.facts_lost,
    )
    assert () == rig.sink.unrecorded
    assert f"25 decisions are in the spool ({tmp_path})" in caplog.records[-1].getMessage()
    sink, taken = heir(tmp_path)
    wait_until(lambda: not files(tmp_path), 10.0)
    sink.close(5.0)
    blocks = [decode_block(value) for value in values(taken, DECISIONS.name)]
    old = [(block.first_seq, block.count) for block in blocks if block.epoch == IDENTITY.epoch and block.count]
    assert [(0, 10), (10, 10), (20, 5)] == old
    told = [event for value in values(taken, CONTROL.name) if (event := decode_control(value)).epoch == IDENTITY.epoch]
    assert [CopyStarted, Anchor, CopyStopped] == [type(event) for event in told]
    (facts,) = [decode_facts(value) for value in values(taken, GRANTS.name)]
    assert ([grant()], [settlement()]) == (facts.grants, facts.settlements)
    assert (25, 0, 0) == (sink.stats.inherited, sink.stats.delivered, sink.stats.lost)
    assert [] == list(tmp_path.iterdir())


def test_beyond_the_bounds_each_decision_is_in_one_loss_record(tmp_path: Path) -> None:
    """R9 with a disk: what memory and spool hold counts, the newest beyond it are named, even though Kafka is away."""
    rig = Rig(config(tmp_path, max_held=100, max_bytes=2_500), is_away=True)
    for first_seq in range(0, 500, 50):
        for one in verdicts(50, first_seq=first_seq):
            rig.sink.capture(one)
        wait_until(lambda: not rig.sink._shipper.captured, 5.0)
    rig.sink.close(0.3)
    stats = rig.sink.stats
    assert (500, 500) == (stats.captured, stats.lost + stats.spooled)
    assert min(stats.lost, stats.spooled) > 0
    sink, taken = heir(tmp_path)
    wait_until(lambda: not files(tmp_path), 10.0)
    sink.close(5.0)
    recorded = [
        seq
        for value in values(taken, DECISIONS.name)
        if (block := decode_block(value)).epoch == IDENTITY.epoch
        for seq in range(block.first_seq, block.first_seq + block.count)
    ]
    events = [decode_control(value) for value in values(taken, CONTROL.name)]
    lost = [event for event in events if isinstance(event, DecisionsLost)]
    named = [seq for event in lost for seq in range(event.first_seq, event.first_seq + event.count)]
    assert list(range(500)) == sorted(recorded + named)
    assert (stats.spooled, stats.lost) == (len(recorded), len(named))


def test_buffer_bound_without_a_disk_is_exact() -> None:
    """R9: bound 100, 130 decisions, broker down: 100 counted, and one loss record says 100 to 129."""
    rig = Rig(StreamConfig(flush_s=0.05, block_decisions=10, max_held=100), is_away=True)
    for one in verdicts(130):
        rig.sink.capture(one)
    wait_until(lambda: rig.sink.stats.lost == 30, 5.0)
    rig.behaviour["delivers"] = True
    rig.producers[-1].delivers, rig.producers[-1].is_away = True, False
    wait_until(lambda: rig.sink.stats.delivered == 100, 10.0)
    rig.sink.close(5.0)
    told = [
        decode_control(one["value"]) for each in rig.producers for one in each.delivered if one["topic"] == CONTROL.name
    ]
    lost = [(event.first_seq, event.count, event.cause) for event in told if isinstance(event, DecisionsLost)]
    assert [(100, 30, OVERFLOW)] == lost


def test_folder_that_cannot_be_made_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A read-only container: the copy works, and its operator knows what a kill would cost."""
    (tmp_path / "file").write_text("")
    rig = Rig(config(tmp_path / "file" / "spool"), delivers=True)
    for one in verdicts(25):
        rig.sink.capture(one)
    # The folder is made in a thread of its own, which a copy that ends at once does not wait for.
    wait_until(lambda: "no spool can be made in" in caplog.text, 10.0)
    rig.sink.close(5.0)
    assert (25, 0) == (rig.sink.stats.delivered, rig.sink.stats.spooled)
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert 1 == len(lines)
    assert "no spool can be made in" in lines[0]
    assert "TALLYGATE_SPOOL_DIR" in lines[0]


def test_folder_that_cannot_be_made_is_tried_again_every_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A disk that is full for a moment must not cost a copy its spool for all its life."""
    (tmp_path / NEXT.copy_id).write_text("in the way")
    shipper = Shipper(config(tmp_path), NEXT, now_s=0.0, unix_us=0)
    spool = Spool(
        config(tmp_path),
        NEXT,
        shipper.outbox,
        on_unreadable=shipper.unreadable,
        found=shipper.found,
        worker=InlineWorker(),
    )
    for now_s in (0.0, 61.0, 62.0, 122.0, 123.0):
        spool.turn(now_s=now_s, in_trouble=False, partitions=4)
        assert not spool.is_open
    (tmp_path / NEXT.copy_id).unlink()
    for now_s, is_open in ((124.0, False), (181.0, False), (183.0, False), (183.1, True)):
        spool.turn(now_s=now_s, in_trouble=False, partitions=4)
        assert is_open == spool.is_open, now_s
    assert 1 == len([record for record in caplog.records if record.levelno >= logging.WARNING])
    spool.close(deadline_s=time.monotonic() + 5.0)
    assert [] == list(tmp_path.iterdir())


def test_disk_that_fails_at_the_close_is_said_and_what_was_written_ships(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The lock must not stay with a process that lives on, and its close must come to its end."""
    rig = Rig(config(tmp_path), is_away=True)
    for one in verdicts(25):
        rig.sink.capture(one)
    wait_until(lambda: rig.sink.stats.spooled == 25, 10.0)

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "the disk has failed")

    monkeypatch.setattr(os, "fsync", fail)
    rig.sink.close(0.5)
    monkeypatch.undo()
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert 1 == len(
        [line for line in lines if "could not be closed in order" in line and "the disk has failed" in line]
    )
    assert not [line for line in lines if "a round of the record's shipping failed" in line]
    after, _ = heir(tmp_path)
    wait_until(lambda: after.stats.inherited == 25, 10.0)
    after.close(5.0)


def test_healthy_copy_leaves_nothing_behind(tmp_path: Path) -> None:
    """No folder, no file: nothing for the next to look at."""
    rig = Rig(config(tmp_path), delivers=True)
    for one in verdicts(25):
        rig.sink.capture(one)
    wait_until(lambda: rig.sink.stats.delivered == 25, 5.0)
    assert (0, 0, 0.0) == (rig.sink.stats.spooled, rig.sink.stats.spool_bytes, rig.sink.stats.spool_age_s)
    rig.sink.close(5.0)
    assert [] == list(tmp_path.iterdir())


def test_spool_is_seen_while_it_fills(tmp_path: Path) -> None:
    """Prometheus shows how much waits and for how long."""
    rig = Rig(config(tmp_path), is_away=True)
    for one in verdicts(25):
        rig.sink.capture(one)
    wait_until(lambda: rig.sink.stats.spooled == 25 and rig.sink.stats.spool_age_s > 0, 10.0)
    assert rig.sink.stats.spool_bytes > 100
    assert (25, 0) == (rig.sink.stats.queued, rig.sink.stats.lost)
    rig.sink.close(0.1)


def test_hanging_disk_lets_neither_memory_grow_nor_the_close_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound of the memory holds, the losses are counted, and the process ends in its time."""
    goes_on = threading.Event()

    def hang(descriptor: int, data: bytes) -> None:
        goes_on.wait(60)

    monkeypatch.setattr(store, "write_all", hang)
    rig = Rig(config(tmp_path, max_held=100), is_away=True)
    try:
        for one in verdicts(500):
            rig.sink.capture(one)
        wait_until(lambda: rig.sink.stats.lost == 400, 10.0)
        started_s = time.monotonic()
        rig.sink.close(0.5)
        assert time.monotonic() - started_s < 3.0
        assert 500 == rig.sink.stats.lost == sum(loss.count for loss in rig.sink.unrecorded)
    finally:
        goes_on.set()


def test_copy_that_ends_takes_no_inheritance(tmp_path: Path) -> None:
    """A close must not wait for a gigabyte that another copy left: whoever lives on ships it."""
    rig = Rig(config(tmp_path), is_away=True)
    rig.sink.capture(verdicts(1)[0])
    rig.sink.close(0.1)
    left = files(tmp_path)
    shipper = Shipper(config(tmp_path), NEXT, now_s=0.0, unix_us=0)
    spool = Spool(
        config(tmp_path),
        NEXT,
        shipper.outbox,
        on_unreadable=shipper.unreadable,
        found=shipper.found,
        worker=InlineWorker(),
    )
    for inherits, found in ((False, False), (True, True)):
        for _ in range(9):
            spool.turn(now_s=1e9, in_trouble=False, partitions=4, inherits=inherits)
        assert found == any(letter.heir_of == IDENTITY for _, letter in shipper.outbox)
    assert left == files(tmp_path / IDENTITY.copy_id)
    spool.close(deadline_s=0.0)


def test_copy_that_died_is_found_and_said(tmp_path: Path) -> None:
    """A process that was killed leaves its lock free: here its descriptors are closed without a word."""
    rig = Rig(config(tmp_path), is_away=True)
    for one in verdicts(25):
        rig.sink.capture(one)
    wait_until(lambda: rig.sink.stats.spooled == 25, 10.0)
    rig.sink._spool.after_fork()
    sink, taken = heir(tmp_path)
    wait_until(lambda: sink.stats.inherited == 25, 10.0)
    sink.close(5.0)
    found = [event for value in values(taken, CONTROL.name) if isinstance(event := decode_control(value), CopyFound)]
    assert [(IDENTITY.copy_id, IDENTITY.epoch, NEXT.epoch, 25)] == [
        (event.copy_id, event.epoch, event.by, event.next_seq) for event in found
    ]
    rig.sink.close(0.1)
