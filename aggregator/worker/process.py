"""The process of the live totals: its job, fed by Faust (`aggregator.worker.running`). Holds no totals itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

import pyarrow as pa

from aggregator.core.record.acceptance import Accepted, accept_block
from aggregator.store_clickhouse import ClickHouseStore
from aggregator.worker.app import build_app
from aggregator.worker.feed import UsageFeed
from aggregator.worker.job import LiveJob
from aggregator.worker.log_view import KafkaView
from aggregator.worker.part import FaustPart
from aggregator.worker.ports import LogMessage
from aggregator.worker.running import FaustProcess, now_minute, run_process
from aggregator.worker.same_log import ANSWER_S
from aggregator.worker.status import StatusLine
from aggregator.worker.table import LiveStore
from aggregator.worker.usage_sender import KafkaUsage
from stream.contract.topics import DECISIONS

_NAMED = str.maketrans("+/=", "._-")


def main(environ: Mapping[str, str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; returns 0 then, 1 if it could not start, 2 if its settings are wrong."""
    return run_process("worker", _Worker, environ)


class _Worker(FaustProcess):
    """The live totals: counts the decisions topic into the `live` table, and tells the second stage."""

    async def _build(self) -> FaustPart:
        config = self._config
        table, untold, table_id = await asyncio.to_thread(self._connect)
        # Asked before Faust starts: whatever takes this log's place from now on is noticed.
        watched = KafkaView(config.kafka, DECISIONS.name, timeout_s=ANSWER_S)
        log_id = await watched.log_id()
        # The group is the table's own: a new database reads the log from its beginning, whatever another has read. And
        # it is the log's, if the table has counted another: what was acknowledged of that says nothing of this.
        group = f"{config.worker_group}-{table_id}"
        if await asyncio.to_thread(table.has_other_logs, log_id):
            # In what may stand in a group's name.
            group = f"{group}-{log_id.translate(_NAMED)}"
        feed = UsageFeed(
            untold,
            KafkaUsage(config.kafka),
            table_id=table_id,
            partitions=config.partitions,
            now_minute=now_minute,
        )
        view = KafkaView(config.kafka, DECISIONS.name)
        job = LiveJob(table, view, decode=_accepted, now_s=time.monotonic, feed=feed)
        app = build_app(config, job, group=group, topic=DECISIONS.name, agent="live_totals")
        return FaustPart(
            app=app,
            job=job,
            group=group,
            topic=DECISIONS.name,
            view=watched,
            log_id=log_id,
            flush_s=config.worker_flush_ms / 1000,
            said=f"counting {config.kafka} into {config.clickhouse.address} as {group}",
            say=StatusLine(app, job, now_s=time.monotonic).say_if_due,
            finish=feed.finish,
            close=_all_of(feed.close, table.close),
        )

    def _connect(self) -> tuple[LiveStore, LiveStore, str]:
        # The first array imports pandas where it is installed: seconds of work that must not fall into a flush.
        pa.array([""])
        # One connection serves one thread.
        table, untold = (LiveStore(ClickHouseStore.open(self._config.clickhouse)) for _ in range(2))
        return table, untold, table.table_id()


def _all_of(*acts: Callable[[], None]) -> Callable[[], None]:
    def act() -> None:
        for one in acts:
            one()

    return act


def _accepted(message: LogMessage) -> Accepted:
    """The block of a message at the times that count, as the recorder takes it."""
    return accept_block(message.value, appended_us=message.appended_us)
