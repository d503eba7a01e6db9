"""Ten minutes on record and settled, and a shadow to rebuild them in: what tests of replays begin with."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime

from aggregator.config import AggregatorConfig
from aggregator.core.record.pending import Pending
from aggregator.migrate import migrate
from aggregator.recorder.dead_letters import DeadLetterTopic
from aggregator.recorder.writer import Writer
from aggregator.replay import command, rebuild
from aggregator.store_clickhouse import ClickHouseStore
from stream.contract.topics import DECISIONS
from tests.recordblocks import SPENT, Made, at, make_block

LOG = logging.getLogger("test")
MINUTE_US = 60_000_000
NOW_US = int(datetime.now(UTC).timestamp()) * 1_000_000 // MINUTE_US * MINUTE_US


@contextmanager
def settled_record(database_dsn: str) -> Iterator[ClickHouseStore]:
    """A record of ten minutes of two callers, settled; for the settings of the environment."""
    record(database_dsn, NOW_US - 20 * MINUTE_US)
    with closing(ClickHouseStore.connect(database_dsn)) as handle:
        yield handle


@contextmanager
def shadow_of(database_dsn: str) -> Iterator[str]:
    """The name of a shadow beside a database, dropped afterwards."""
    with closing(ClickHouseStore.connect(database_dsn)) as handle:
        name = f"{handle.rows('SELECT currentDatabase()')[0][0]}_shadow"
        yield name
        handle.command(f"DROP DATABASE IF EXISTS {name} SYNC")


def record(database_dsn: str, first_us: int) -> None:
    """Ten minutes from a time on, recorded and settled."""
    migrate(database_dsn)
    topic = DeadLetterTopic("127.0.0.1:1", LOG)
    writer = Writer(lambda: ClickHouseStore.connect(database_dsn), topic, LOG, unix_us=lambda: NOW_US)
    flush = Pending({DECISIONS.name: "log-1"})
    for minute in range(10):
        at_us = first_us + minute * MINUTE_US
        made = [Made(("a", "b")[n % 2], at_us + n, code=SPENT if n % 3 == 0 else 0) for n in range(60)]
        flush.blocks.append(at(make_block(made, first_seq=minute * 60, sealed_at_us=at_us + 100), minute))
    flush.first_offsets[DECISIONS.name, 0], flush.next_offsets[DECISIONS.name, 0] = 0, 10
    writer.start(flush)
    assert writer.wait(60)
    assert writer.take_written() is flush
    rebuild.settle(AggregatorConfig.from_env(), LOG, lambda _: None, unix_us=lambda: NOW_US)


def replay(shadow: str, *words: str, source: str = "raw") -> int:
    """Run the command; its exit code."""
    return command.main(["--from", source, "--into", shadow, *words])
