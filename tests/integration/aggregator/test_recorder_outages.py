"""The recorder when things break: itself, the database, its disk, the broker. Nothing is lost, nothing counts twice."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tallygate.engines.clickhouse import ClickHouse, start_clickhouse
from tallygate.engines.process import Child
from tallygate.engines.tansu import start_tansu
from tests.integration.aggregator.recording import Recording, recording
from tests.logfill import Fill, send, send_messages
from tests.processes import freeze, kill, thaw, wait_until
from tests.services import KafkaService, unavailable

FILL = Fill(decisions=200_000, block=500, callers=200)
MORE = Fill(decisions=50_000, block=500, callers=200, epoch=2)


@pytest.fixture
def log(kafka_broker: KafkaService, database_dsn: str, tmp_path: Path) -> Iterator[Recording]:
    """An empty log and an empty record."""
    with recording(kafka_broker.bootstrap, database_dsn, tmp_path) as made:
        yield made


@contextmanager
def _own_database(folder: Path) -> Iterator[tuple[Recording, ClickHouse]]:
    """A log and a database of the test's own, which it may freeze, kill or fill."""
    broker = start_tansu(log_dir=folder.parent / "broker")
    server = start_clickhouse(folder)
    try:
        with recording(broker.bootstrap, server.dsn, folder.parent) as made:
            yield made, server
    finally:
        server.stop()
        broker.stop()


def _assert_exact(log: Recording, *fills: Fill) -> None:
    expected: dict[tuple[str, str, int, int], int] = {}
    for fill in fills:
        for cell, count in fill.totals().by_cell.items():
            expected[cell] = expected.get(cell, 0) + count
    assert expected == log.by_cell()
    assert 0 == log.conflicting()
    assert 0 == log.repeated()


def _warnings(recorder: Child, about: str) -> list[str]:
    lines = recorder.log_path.read_text().splitlines()
    return [line for line in lines if " WARNING " in line and about in line]


def test_recorder_killed_twice_in_the_middle_loses_nothing_and_doubles_nothing(log: Recording) -> None:
    """A crash at any point is a replay from the last commit, and a replay writes the same rows."""
    messages = list(FILL.messages())
    third = len(messages) // 3
    for part in (0, 1):
        send_messages(log.bootstrap, messages[part * third : (part + 1) * third])
        recorder = log.start(flush_decisions="4000", flush_ms="50")
        # As soon as it has begun with this part, so most of the part is read and not recorded, or not yet read.
        log.wait_for(part * third * FILL.block + 1)
        kill(recorder.pid)
    send_messages(log.bootstrap, messages[2 * third :])
    recorder = log.start(flush_decisions="30000")
    log.wait_for(FILL.total)
    recorder.stop(timeout_s=60)
    _assert_exact(log, FILL)
    assert FILL.blocks == log.acknowledged()


def test_recorder_goes_on_after_the_broker_stood_still(log: Recording, kafka_broker: KafkaService) -> None:
    """A frozen broker looks like a slow one; the recorder waits, and the count stays exact."""
    send(log.bootstrap, FILL)
    recorder = log.start(flush_decisions="4000")
    log.wait_for(int(FILL.total * 0.1))
    freeze(kafka_broker.pid)
    with pytest.raises(TimeoutError):
        wait_until(lambda: recorder.exit_code() is not None, 6.0)
    thaw(kafka_broker.pid)
    log.wait_for(FILL.total)
    recorder.stop(timeout_s=60)
    _assert_exact(log, FILL)


def test_recorder_waits_for_a_frozen_database_and_goes_on(tmp_path: Path) -> None:
    """Nothing is acknowledged while nobody answers, and the recorder keeps its place in the group."""
    with _own_database(tmp_path / "clickhouse") as (log, server):
        send(log.bootstrap, FILL)
        recorder = log.start(flush_decisions="4000")
        log.wait_for(int(FILL.total * 0.1))
        freeze(server.pid)
        # Sent when nothing can be stored any more, so that none of it may be acknowledged.
        send(log.bootstrap, MORE)
        with pytest.raises(TimeoutError):
            wait_until(lambda: log.acknowledged() > FILL.blocks, 5.0, poll_s=0.5)
        thaw(server.pid)
        log.wait_for(FILL.total + MORE.total)
        assert recorder.exit_code() is None
        recorder.stop(timeout_s=60)
        _assert_exact(log, FILL, MORE)


def test_recorder_says_once_that_the_database_is_away_and_goes_on_by_itself(tmp_path: Path) -> None:
    """Whoever reads the log sees when it began, what it means, and when it was over."""
    folder = tmp_path / "clickhouse"
    with _own_database(folder) as (log, server):
        send(log.bootstrap, FILL)
        recorder = log.start(flush_decisions="4000")
        log.wait_for(int(FILL.total * 0.1))
        kill(server.pid)
        # There is something to record now, however fast the recorder was with what came before.
        send(log.bootstrap, MORE)
        log.wait_for_log(recorder, "nothing is acknowledged meanwhile")
        with pytest.raises(TimeoutError):
            wait_until(lambda: log.acknowledged() > FILL.blocks, 3.0, poll_s=0.5)
        again = start_clickhouse(folder, server.port)
        try:
            log.wait_for(FILL.total + MORE.total)
            log.wait_for_log(recorder, "again after")
            recorder.stop(timeout_s=60)
            assert 0 == recorder.exit_code()
            _assert_exact(log, FILL, MORE)
            said = _warnings(recorder, "ClickHouse at")
            assert 1 <= len(said) <= 2, "once for the broken connection, at most once more for the closed port"
            assert f"http://127.0.0.1:{server.port}/tallygate" in said[0]
        finally:
            again.stop()


def test_recorder_stopped_while_the_database_is_away_ends_and_leaves_the_rest_to_the_next_start(
    tmp_path: Path,
) -> None:
    """A stop must not hang, and must not acknowledge what is not stored."""
    folder = tmp_path / "clickhouse"
    with _own_database(folder) as (log, server):
        send(log.bootstrap, FILL)
        recorder = log.start(flush_decisions="4000")
        log.wait_for(int(FILL.total * 0.1))
        kill(server.pid)
        send(log.bootstrap, MORE)
        log.wait_for_log(recorder, "nothing is acknowledged meanwhile")
        recorder.stop(timeout_s=60)
        assert 0 == recorder.exit_code()
        assert "the next start reads it again" in recorder.log_path.read_text()
        again = start_clickhouse(folder, server.port)
        try:
            log.start()
            log.wait_for(FILL.total + MORE.total)
            _assert_exact(log, FILL, MORE)
        finally:
            again.stop()


def test_recorder_stopped_while_the_broker_stands_still_ends_in_time(tmp_path: Path) -> None:
    """Neither its last commit nor its leave may hold it until the supervisor kills it."""
    broker = start_tansu(log_dir=tmp_path / "broker")
    server = start_clickhouse(tmp_path / "clickhouse")
    try:
        with recording(broker.bootstrap, server.dsn, tmp_path) as log:
            send(log.bootstrap, FILL)
            recorder = log.start(flush_decisions="4000")
            log.wait_for(int(FILL.total * 0.1))
            freeze(broker.pid)
            recorder.ask_to_end()
            try:
                # It takes twelve seconds at most; the client would wait for sixty.
                assert 0 == recorder.wait(timeout_s=40)
            finally:
                thaw(broker.pid)
            log.start()
            log.wait_for(FILL.total)
            _assert_exact(log, FILL)
    finally:
        server.stop()
        broker.stop()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of 96 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        unavailable(f"a small disk cannot be mounted here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_recorder_stops_acknowledging_on_a_full_disk_and_goes_on_when_there_is_room(small_disk: Path) -> None:
    """A full disk under the database costs time, never a decision."""
    filler = small_disk / "filler"
    with _own_database(small_disk / "clickhouse") as (log, _server):
        recorder = log.start(flush_decisions="50000")
        send(log.bootstrap, MORE)
        log.wait_for(MORE.total)
        _fill_up(filler)
        send(log.bootstrap, FILL)
        log.wait_for_log(recorder, "is full")
        with pytest.raises(TimeoutError):
            wait_until(lambda: log.acknowledged() >= MORE.blocks + FILL.blocks, 3.0, poll_s=0.5)
        (said,) = _warnings(recorder, "is full")
        assert re.search(r"the disk of ClickHouse at http://\S+ is full: .*nothing is acknowledged meanwhile", said)
        assert recorder.exit_code() is None
        filler.unlink()
        log.wait_for(FILL.total + MORE.total)
        log.wait_for_log(recorder, "ClickHouse takes rows again after")
        recorder.stop(timeout_s=60)
        _assert_exact(log, FILL, MORE)


def _fill_up(filler: Path) -> None:
    """Leave some room, less than one batch needs."""
    chunk = bytes(1 << 20)
    with filler.open("wb") as file:
        try:
            while True:
                file.write(chunk)
                file.flush()
        except OSError:
            file.truncate(max(file.tell() - 131_072, 0))


@pytest.mark.parametrize(
    ("settings", "code", "said"),
    [
        (
            {"kafka": "127.0.0.1:1", "start_timeout_s": "1"},
            1,
            ["Kafka at 127.0.0.1:1", "TALLYGATE_KAFKA", "TALLYGATE_START_TIMEOUT_S"],
        ),
        (
            {"clickhouse": "http://u:hunter2@127.0.0.1:1/x", "start_timeout_s": "1"},
            1,
            ["ClickHouse at http://127.0.0.1:1/x does not answer", "TALLYGATE_CLICKHOUSE"],
        ),
        ({"clickhouse": "clickhouse:9000"}, 2, ["TALLYGATE_CLICKHOUSE", "scheme is 'clickhouse'", "http or https"]),
        ({"partitions": "3"}, 1, ["TALLYGATE_PARTITIONS is 3", "tallygate.decisions has 4"]),
    ],
)
def test_recorder_that_cannot_start_says_why(
    embedded_broker: KafkaService,
    database_dsn: str,
    tmp_path: Path,
    settings: dict[str, str],
    code: int,
    said: list[str],
) -> None:
    """An address, the setting that holds it, and an exit code that a supervisor sees."""
    with recording(embedded_broker.bootstrap, database_dsn, tmp_path) as log:
        recorder = log.start(**settings)
        assert code == recorder.wait(timeout_s=120)
        text = recorder.log_path.read_text()
        for words in said:
            assert words in text
        assert "hunter2" not in text
        assert "Traceback" not in text
