"""The process of the second stage: its job, fed by Faust, with the same watch over it as the first stage has."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

import pyarrow as pa

from aggregator.core.signals.rows import Noteworthy
from aggregator.signals.job import SignalsJob
from aggregator.signals.table import SignalsStore
from aggregator.store_clickhouse import ClickHouseStore
from aggregator.worker.app import build_app
from aggregator.worker.log_view import KafkaView
from aggregator.worker.part import FaustPart
from aggregator.worker.running import FaustProcess, now_minute, run_process
from aggregator.worker.same_log import ANSWER_S
from stream.contract.topics import USAGE

log = logging.getLogger("tallygate.worker")

_SAY_EVERY_S = 10.0


def main(environ: Mapping[str, str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; returns 0 then, 1 if it could not start, 2 if its settings are wrong."""
    return run_process("signals", _Signals, environ)


class _Signals(FaustProcess):
    """Reads the usage topic into the `signals` table."""

    async def _build(self) -> FaustPart:
        config = self._config
        table, table_id = await asyncio.to_thread(self._connect)
        # Asked before Faust starts: whatever takes this log's place from now on is noticed.
        watched = KafkaView(config.kafka, USAGE.name, timeout_s=ANSWER_S)
        log_id = await watched.log_id()
        group = f"{config.signals_group}-{table_id}"
        job = SignalsJob(
            table,
            table_id=table_id,
            partitions=config.partitions,
            noteworthy=Noteworthy(config.signals_floor, config.anonymous_caller),
            now_s=time.monotonic,
            now_minute=now_minute,
        )
        return FaustPart(
            app=build_app(config, job, group=group, topic=USAGE.name, agent="signals"),
            job=job,
            group=group,
            topic=USAGE.name,
            view=watched,
            log_id=log_id,
            flush_s=config.signals_flush_ms / 1000,
            said=f"watching {config.kafka} for {config.clickhouse.address} as {group}",
            say=_status(job, time.monotonic),
            finish=_nothing,
            close=table.close,
        )

    def _connect(self) -> tuple[SignalsStore, str]:
        # The first array imports pandas where it is installed: seconds of work that must not fall into a flush.
        pa.array([""])
        table = SignalsStore(ClickHouseStore.open(self._config.clickhouse), partitions=self._config.partitions)
        return table, table.table_id()


async def _nothing(_within_s: float) -> None:
    """Everything is written by then."""


def _status(job: SignalsJob, now_s: Callable[[], float]) -> Callable[[], None]:
    """What writes a line about the job every ten seconds."""
    said_s = now_s()

    def say() -> None:
        nonlocal said_s
        if now_s() - said_s < _SAY_EVERY_S:
            return
        said_s = now_s()
        stats = job.stats
        log.info(
            "%s blocks with %s newer totals, %d partitions, last write %.0f ms, %s rows written; "
            "begun %d, corrupt %d, of another database %d",
            f"{stats.blocks:,}",
            f"{stats.rows:,}",
            len(job.positions),
            stats.flush_s * 1000,
            f"{stats.written:,}",
            stats.opened,
            stats.corrupt,
            stats.strange,
        )

    return say
