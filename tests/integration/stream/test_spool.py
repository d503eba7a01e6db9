"""Copies that lose their broker, and are killed or restarted meanwhile, on real brokers: audited from the log."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from enforcer.identity import CopyIdentity
from stream.admin import ensure_topics
from stream.config import StreamConfig
from stream.contract.codec import hash_block
from stream.contract.control import CopyFound, CopyStopped
from stream.producer import KafkaSink
from stream.spool.record import MAGIC, read_records
from tallygate.engines.process import Child, Command, spawn
from tallygate.engines.tansu import start_tansu
from tests.log_reader import Log, read_log
from tests.processes import freeze, kill, thaw, wait_until
from tests.services import KafkaService
from tests.verdicts import IDENTITY, verdict

ROOT = Path(__file__).resolve().parents[3]
POLICY = "version: 1\nplans: {small: {rate_per_s: 1, burst: 50}}\ndefault_plan: small\n"
RATE = 200


class Past:
    """The clocks of a machine that is eight days behind."""

    def unix_us(self) -> int:
        return time.time_ns() // 1_000 - 8 * 86_400 * 1_000_000

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()


class Fleet:
    """Copies on one spool, each with a file of how far it got."""

    def __init__(self, bootstrap: str, owner: str, folder: Path) -> None:
        self.folder = folder
        (folder / "policy.yaml").write_text(POLICY)
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TALLYGATE_")},
            "TALLYGATE_POLICY": str(folder / "policy.yaml"),
            "TALLYGATE_OWNER_URL": owner,
            "TALLYGATE_KAFKA": bootstrap,
            "TALLYGATE_SPOOL_DIR": str(folder / "spool"),
        }
        self.children: list[Child] = []

    def start(self, copy_id: str) -> Child:
        """Start a copy; it decides from now on."""
        name = f"copy-{len(self.children)}"
        argv = [sys.executable, "-m", "tests.servers.spooling", str(RATE), str(self.folder / name)]
        environ = {**self.environ, "TALLYGATE_COPY_ID": copy_id}
        child = spawn(Command(name, argv, self.folder / f"{name}.log", environ, ROOT))
        self.children.append(child)
        wait_until(lambda: self.decided(child) > 0, 60.0, what=f"{name} to decide")
        return child

    def said(self, child: Child) -> list[list[float]]:
        """Pairs of a time and the decisions until then; at an orderly end, with what the slowest checks took."""
        path = self.folder / child.name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def decided(self, child: Child, *, before: float = float("inf")) -> int:
        """How many decisions it had made at that time."""
        return max((int(line[1]) for line in self.said(child) if line[0] <= before), default=0)

    def end(self, child: Child) -> tuple[int, float]:
        """Stop it as an operator does; how many decisions it made, and what all but a hundredth of the checks took."""
        os.kill(child.pid, signal.SIGTERM)
        wait_until(lambda: bool(self.said(child)) and len(self.said(child)[-1]) == 3, 60.0, what="an orderly end")
        _, count, slowest_s = self.said(child)[-1]
        return int(count), slowest_s

    def stop(self) -> None:
        for child in self.children:
            child.stop(timeout_s=20)


@pytest.fixture
def fleets() -> Iterator[list[Fleet]]:
    """Those that a test starts; they end with it."""
    started: list[Fleet] = []
    yield started
    for fleet in started:
        fleet.stop()


def seqs_by_epoch(log: Log) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for _, epoch, seq in log.identities():
        found.setdefault(epoch, set()).add(seq)
    return found


@pytest.mark.services
def test_killed_copy_loses_only_its_last_two_seconds_and_that_is_seen(
    apache_broker: KafkaService, valkey_url: str, tmp_path: Path, fleets: list[Fleet]
) -> None:
    """The broker stands still, the copy is killed -9, and another name comes back in its place."""
    ensure_topics(apache_broker.bootstrap, partitions=4, timeout_s=20.0)
    fleets.append(fleet := Fleet(apache_broker.bootstrap, valkey_url, tmp_path))
    first = fleet.start("slot-a-1")
    wait_until(lambda: fleet.decided(first) > RATE, 60.0)
    freeze(apache_broker.pid)
    try:
        before = fleet.decided(first)
        wait_until(lambda: fleet.decided(first) > before + 5 * RATE, 60.0)
        killed_at = time.time()
        kill(first.pid)
    finally:
        thaw(apache_broker.pid)
    second = fleet.start("slot-a-2")

    def is_shipped(log: Log) -> bool:
        return any(isinstance(event, CopyFound) for event in log.control) and len(seqs_by_epoch(log)) == 2

    wait_until(lambda: not list((tmp_path / "spool" / "slot-a-1").rglob("*")), 60.0, what="the spool to be shipped")
    count, _ = fleet.end(second)
    log = read_log(apache_broker.bootstrap, is_shipped)
    (found,) = {event for event in log.control if isinstance(event, CopyFound)}
    seqs = seqs_by_epoch(log)
    recorded = seqs.pop(found.epoch)
    assert set(range(len(recorded))) == recorded
    # A second for the block, two until it is spooled, and what a busy machine takes.
    assert len(recorded) >= fleet.decided(first, before=killed_at - 4.0) > before
    assert (found.copy_id, found.next_seq) == ("slot-a-1", len(recorded))
    assert [set(range(count))] == list(seqs.values())
    assert not [event for event in log.control if isinstance(event, CopyStopped) and event.epoch == found.epoch]
    assert [] == log.lost()


@pytest.mark.services
def test_restart_in_the_middle_of_an_outage_loses_nothing(valkey_url: str, tmp_path: Path, fleets: list[Fleet]) -> None:
    """R8: no broker for minutes, the copy restarted in between: every decision counts, and no check waited for it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    fleets.append(fleet := Fleet(f"127.0.0.1:{port}", valkey_url, tmp_path))
    first = fleet.start("slot-a")
    wait_until(lambda: fleet.decided(first) > 2 * RATE, 60.0)
    counts = [fleet.end(first)]
    second = fleet.start("slot-a")
    wait_until(lambda: fleet.decided(second) > RATE, 60.0)
    broker = start_tansu(port=port)
    try:
        wait_until(lambda: len(list((tmp_path / "spool").rglob("lock"))) == 1, 60.0, what="the old spool to be shipped")
        counts.append(fleet.end(second))
        log = read_log(broker.bootstrap, lambda log: sum(isinstance(e, CopyStopped) for e in log.control) >= 2)
    finally:
        broker.stop()
    seqs = seqs_by_epoch(log)
    assert [set(range(count)) for count, _ in counts] == [seqs[epoch] for epoch in sorted(seqs)]
    assert [] == log.lost()
    assert [] == [event for event in log.control if isinstance(event, CopyFound)]
    assert max(slowest_s for _, slowest_s in counts) < 0.01
    facts = [grant for _, block in log.facts for grant in block.grants]
    assert facts, "grants waited for a partition, and found none"
    assert [] == list((tmp_path / "spool").iterdir())


@pytest.mark.services
def test_spooled_for_eight_days_ships_unchanged(embedded_broker: KafkaService, tmp_path: Path) -> None:
    """R7: times are of the decision; however long it lay on disk, its block is the same."""
    config = StreamConfig(bootstrap="127.0.0.1:1", flush_s=0.05, spool_dir=tmp_path)

    old = KafkaSink(config, IDENTITY, clock=Past())
    at_us = Past().unix_us()
    for seq in range(100):
        old.capture(verdict(seq, at_ns=time.monotonic_ns()))
    old.close(0.2)
    assert 100 == old.stats.spooled
    (lock,) = tmp_path.rglob("lock")
    # The same log, under the address that it has now.
    lock.write_text(embedded_broker.bootstrap)
    (file,) = tmp_path.rglob("*.spool")
    left = [read.letter for read in read_records(file.read_bytes()[len(MAGIC) :]) if read.letter.decisions]
    config = StreamConfig(bootstrap=embedded_broker.bootstrap, spool_dir=tmp_path)
    new = KafkaSink(config, CopyIdentity("gw-next", IDENTITY.epoch + 1))
    wait_until(lambda: new.stats.inherited == 100, 60.0)
    new.close(10.0)
    log = read_log(embedded_broker.bootstrap, lambda log: len(log.identities()) >= 100)
    blocks = [block for block in log.blocks if block.epoch == IDENTITY.epoch and block.count]
    assert list(range(100)) == [seq for _, _, seq in log.identities()]
    assert all(abs(int(at) - at_us) < 60_000_000 for block in blocks for at in block.at_us)
    assert [hash_block(letter.value) for letter in left] == [block.block_hash for block in blocks]
