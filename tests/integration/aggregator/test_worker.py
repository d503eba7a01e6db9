"""The worker as a process, on both brokers and a real database: exact through kills, rebalances and repetitions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tallygate.engines.clickhouse import start_clickhouse
from tallygate.engines.tansu import start_tansu
from tests.integration.aggregator.counting import Counting, assert_exact, counting, expected_callers
from tests.logfill import Fill, send, send_messages
from tests.processes import freeze, thaw
from tests.services import KafkaService

FILL = Fill(decisions=400_000, block=500, copies=6, callers=200)


@pytest.fixture
def scene(kafka_broker: KafkaService, database_dsn: str, tmp_path: Path) -> Iterator[Counting]:
    """A broker, a database and no worker yet, on each kind of broker."""
    with counting(kafka_broker.bootstrap, database_dsn, tmp_path) as made:
        yield made


@pytest.fixture
def one_scene(embedded_broker: KafkaService, database_dsn: str, tmp_path: Path) -> Iterator[Counting]:
    """The same on the embedded broker alone, for what does not depend on the broker."""
    with counting(embedded_broker.bootstrap, database_dsn, tmp_path) as made:
        yield made


def test_worker_counts_exactly_through_two_kills(scene: Counting) -> None:
    """kill -9 in the middle of a stream: nothing lost, nothing twice. Faust's own tables were wrong by 2 to 26 %."""
    send(scene.bootstrap, FILL)
    for share in (0.1, 0.5):
        victim = scene.worker()
        scene.wait_for(int(FILL.total * share))
        victim.kill()

    last = scene.worker()
    scene.wait_for(FILL.total)
    code = last.stop()

    assert_exact(scene, FILL)
    assert scene.reached()["acct-000000"] == {f"copy-{number:04d}" for number in range(FILL.copies)}
    assert code == 0, last.log


def test_two_workers_count_exactly_through_a_rebalance_and_a_kill(scene: Counting) -> None:
    """A second worker joins, the first is killed: partitions change hands twice while the log goes on."""
    first = scene.worker()
    messages = list(FILL.messages())
    third = len(messages) // 3
    send_messages(scene.bootstrap, messages[:third])
    scene.wait_for(third * FILL.block // 2)
    second = scene.worker()
    second.wait_for_log("counting")
    send_messages(scene.bootstrap, messages[third : 2 * third])
    second.wait_for_log("totals are stored up to")
    first.kill()
    send_messages(scene.bootstrap, messages[2 * third :])
    scene.wait_for(FILL.total)

    assert_exact(scene, FILL)
    assert second.stop() == 0, second.log


def test_a_frozen_worker_that_wakes_up_changes_nothing(scene: Counting) -> None:
    """A process that stood still past its session writes what it held: lower versions, which lose."""
    messages = list(FILL.messages())
    third = len(messages) // 3
    # Flushing late, the first holds unwritten totals when it is frozen.
    first = scene.worker(TALLYGATE_WORKER_FLUSH_MS="2000")
    first.wait_for_log("counting")
    send_messages(scene.bootstrap, messages[:third])
    first.wait_for_log("totals are stored up to")
    freeze(first.pid)
    scene.worker()
    send_messages(scene.bootstrap, messages[third : 2 * third])
    scene.wait_for(2 * third * FILL.block)
    thaw(first.pid)
    # Whichever it meets first: that others have its partitions, or rows of theirs that are newer than its own. With the
    # one partition that it had given up for the latter, there is nothing left that could be taken away.
    first.wait_for_log("were taken away", "opening it anew")
    send_messages(scene.bootstrap, messages[2 * third :])
    scene.wait_for(FILL.total)

    assert_exact(scene, FILL)


def test_worker_counts_a_repeated_block_once_and_skips_a_corrupt_one(scene: Counting) -> None:
    """A producer's retry puts a block on the log twice (R2); a broken one must not stop the partition (R20)."""
    small = Fill(decisions=40_000, block=500, copies=6, callers=50)
    worker = scene.worker()
    messages = list(small.messages())
    send_messages(scene.bootstrap, messages[:30])
    send_messages(scene.bootstrap, [("copy-0000", b"TGDB junk"), ("copy-0001", b"")])
    send_messages(scene.bootstrap, messages[10:])
    scene.wait_for(small.total)
    code = worker.stop()

    assert_exact(scene, small)
    assert code == 0
    assert worker.log.count("is not a block") >= 2, "again only if the group has moved meanwhile"


def test_stopping_worker_writes_and_commits_what_it_took(scene: Counting) -> None:
    """After SIGTERM nothing is left to be read again, so that a deployment costs no time."""
    small = Fill(decisions=20_000, block=500, copies=6, callers=50)
    worker = scene.worker()
    worker.wait_for_log("counting")
    send(scene.bootstrap, small)
    scene.wait_for(small.total)

    assert worker.stop() == 0
    group = re.search(r" as (tallygate-worker-\S+)", worker.log)
    assert group is not None
    assert scene.committed(group.group(1)) == small.blocks


def test_worker_waits_out_a_database_that_is_away(embedded_broker: KafkaService, tmp_path: Path) -> None:
    """ClickHouse down for a while: the worker says so, acknowledges nothing, and goes on when it is back."""
    small = Fill(decisions=60_000, block=500, copies=6, callers=50)
    engine = start_clickhouse(tmp_path / "data")
    try:
        port, dsn = engine.port, engine.dsn_for("tallygate")
        with counting(embedded_broker.bootstrap, dsn, tmp_path) as made:
            worker = made.worker()
            messages = list(small.messages())
            send_messages(made.bootstrap, messages[:60])
            made.wait_for(60 * small.block)
            engine.stop()
            send_messages(made.bootstrap, messages[60:])
            worker.wait_for_log("nothing is acknowledged")
            engine = start_clickhouse(tmp_path / "data", port)
            made.wait_for(small.total)
            worker.wait_for_log("the database answers again")

            assert_exact(made, small)
            assert worker.stop() == 0, worker.log
    finally:
        engine.stop()


def test_worker_counts_a_new_log_on_top_of_what_an_older_one_said(
    embedded_broker: KafkaService, database_dsn: str, tmp_path: Path
) -> None:
    """The embedded broker's log ends with it, the database stays: offset 0 of the next start is no replay."""
    first = Fill(decisions=20_000, block=500, copies=6, callers=50)
    second = Fill(decisions=10_000, block=500, copies=6, callers=50, epoch=2)
    other = start_tansu()
    try:
        for bootstrap, fill in ((embedded_broker.bootstrap, first), (other.bootstrap, second)):
            with counting(bootstrap, database_dsn, tmp_path) as made:
                before = made.counted()
                send(bootstrap, fill)
                worker = made.worker()
                made.wait_for(before + fill.total)
                assert worker.stop() == 0, worker.log
                total, callers = made.counted(), made.by_caller()
    finally:
        other.stop()

    one, two = expected_callers(first.totals()), expected_callers(second.totals())
    assert total == first.total + second.total
    assert callers == {
        caller: tuple(sum(sides) for sides in zip(one.get(caller, (0, 0, 0)), two.get(caller, (0, 0, 0)), strict=True))
        for caller in one | two
    }


def test_worker_ends_when_the_table_is_not_of_this_release(one_scene: Counting) -> None:
    """A worker that can never write must end and say why, and not look alive."""
    worker = one_scene.worker()
    worker.wait_for_log("counting")
    one_scene.store.command("ALTER TABLE live DROP COLUMN k_counted")
    send(one_scene.bootstrap, Fill(decisions=1_000, block=500, copies=2, callers=5))

    assert worker.wait() == 1
    assert "k_counted" in worker.log


@pytest.mark.parametrize(
    ("settings", "code", "texts"),
    [
        (
            {"TALLYGATE_KAFKA": "127.0.0.1:9", "TALLYGATE_START_TIMEOUT_S": "2"},
            1,
            ["127.0.0.1:9", "TALLYGATE_START_TIMEOUT_S"],
        ),
        (
            {"TALLYGATE_CLICKHOUSE": "http://127.0.0.1:9/tallygate", "TALLYGATE_START_TIMEOUT_S": "2"},
            1,
            ["http://127.0.0.1:9/tallygate", "TALLYGATE_CLICKHOUSE", "TALLYGATE_START_TIMEOUT_S"],
        ),
        ({"TALLYGATE_KAFKA": "nowhere", "TALLYGATE_PARTITIONS": "0"}, 2, ["TALLYGATE_KAFKA", "TALLYGATE_PARTITIONS"]),
    ],
)
def test_worker_that_cannot_start_names_the_address_and_its_setting(
    one_scene: Counting, settings: dict[str, str], code: int, texts: list[str]
) -> None:
    """Whoever starts it reads which of three addresses is wrong, and where it is set."""
    worker = one_scene.worker(**settings)

    assert worker.wait() == code
    for text in texts:
        assert text in worker.log
    assert "Traceback" not in worker.log
