"""The process of the live totals: starts the Faust app, watches over it, and ends with the right code.

Whatever Faust does when something goes wrong inside it, this process does not stay behind looking alive: it ends, and
its supervisor starts it again. Holds no totals, and reads no message.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Mapping
from contextlib import suppress

import faust
import pyarrow as pa

from aggregator.broker import LogUnavailable
from aggregator.config import AggregatorConfig
from aggregator.core.acceptance import accept_block
from aggregator.logs import configure
from aggregator.migrate import MigrationError
from aggregator.start import StartFailed, wait_for_services
from aggregator.store import StoreRefused, StoreUnavailable
from aggregator.store_clickhouse import ClickHouseStore
from aggregator.worker.app import build_app
from aggregator.worker.job import LiveJob
from aggregator.worker.log_view import KafkaView
from aggregator.worker.status import StatusLine
from aggregator.worker.table import LiveStore
from aggregator.worker.thread import NotWanted
from enforcer.errors import ConfigError
from stream.contract.topics import DECISIONS

log = logging.getLogger("tallygate.worker")

_FAILED, _WRONG_SETTINGS = 1, 2
_TORN_LIMIT_S = 10.0
_POLL_S = 0.25
#: How long a stop may take, all in all. Supervisors often give fifteen seconds.
_STOP_S = 12.0
#: Of these, what is kept for leaving the group.
_APP_STOP_S = 4.0


def main(environ: Mapping[str, str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; returns 0 then, 1 if it could not start, 2 if its settings are wrong.

    A fault after the start ends the process at once, with code 1: an embedded Faust app cannot be relied on to stop.
    """
    configure("worker")
    for name in ("faust", "mode", "aiokafka"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        config = AggregatorConfig.from_env(environ)
        return asyncio.run(_Worker(config).run())
    except ConfigError as fault:
        log.error("%s", fault)  # noqa: TRY400 - the settings are at fault, a trace would hide which
        return _WRONG_SETTINGS
    except (StartFailed, MigrationError, StoreRefused, StoreUnavailable, LogUnavailable) as fault:
        log.error("%s", fault)  # noqa: TRY400 - the message names the address and its setting
        return _FAILED


class _Worker:
    """One life of the process."""

    def __init__(self, config: AggregatorConfig) -> None:
        self._config = config
        self._stop = asyncio.Event()
        self._stop_waiting = threading.Event()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        await asyncio.to_thread(wait_for_services, self._config, log, self._stop_waiting)
        if self._stop.is_set():
            return 0
        table, table_id = await asyncio.to_thread(self._connect)
        # The group is the table's own: a new database reads the log from its beginning, whatever another has read.
        group = f"{self._config.worker_group}-{table_id}"
        view = KafkaView(self._config.kafka, DECISIONS.name)
        job = LiveJob(table, view, decode=accept_block, now_s=time.monotonic)
        app = build_app(self._config, job, group=group)
        await self._start(app)
        writing = asyncio.create_task(job.run(self._config.worker_flush_ms / 1000))
        log.info("counting %s into %s as %s", self._config.kafka, self._config.clickhouse.address, group)
        await self._watch(app, job, writing)
        await self._end(app, job, writing)
        table.close()
        return 0

    async def _start(self, app: faust.App) -> None:
        """Start Faust, which waits for its broker as long as that takes; a stop ends the process meanwhile."""
        starting, stopped = asyncio.ensure_future(app.start()), asyncio.ensure_future(self._stop.wait())
        await asyncio.wait((starting, stopped), return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            _leave("stopped before the consumer had started; nothing was taken", code=0)
        stopped.cancel()
        try:
            starting.result()
        except Exception as error:  # noqa: BLE001 - whatever Faust raises here, the process must end and say so
            _leave(f"the consumer of Kafka at {self._config.kafka} (TALLYGATE_KAFKA) did not start: {error!r}")

    def _connect(self) -> tuple[LiveStore, str]:
        # The first array imports pandas where it is installed: seconds of work that must not fall into a flush.
        pa.array([""])
        table = LiveStore(ClickHouseStore.open(self._config.clickhouse))
        return table, table.table_id()

    def _on_signal(self) -> None:
        self._stop.set()
        self._stop_waiting.set()

    async def _watch(self, app: faust.App, job: LiveJob, writing: asyncio.Task[None]) -> None:
        """Return when the process is told to stop; end it at once if something in it has failed."""
        status = StatusLine(app, job, now_s=time.monotonic)
        while not self._stop.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), _POLL_S)
            if writing.done():
                _leave(f"writing failed: {writing.exception()!r}")
            if app.should_stop or app.crashed:
                _leave(f"the Faust app stopped by itself: {getattr(app, 'crash_reason', None)!r}")
            since_s = job.torn_since()
            if since_s is not None and time.monotonic() - since_s > _TORN_LIMIT_S:
                _leave(f"a message is missing in the delivery since {_TORN_LIMIT_S:.0f} s; a restart reads it again")
            status.say_if_due()

    async def _end(self, app: faust.App, job: LiveJob, writing: asyncio.Task[None]) -> None:
        """Stop taking, write, commit, leave the group. What cannot be written is read again after the next start."""
        log.info("stopping")
        job.stop_taking()
        until_s = time.monotonic() + _STOP_S
        written_by_s = until_s - _APP_STOP_S
        try:
            async with asyncio.timeout(_STOP_S - _APP_STOP_S):
                await writing
                await job.flush(wanted=lambda: time.monotonic() < written_by_s)
                await app.consumer.commit()
        except (TimeoutError, NotWanted, StoreRefused) as error:
            log.warning("not everything could be written (%r); it is read again at the next start", error)
            _leave("stopped without the last totals", code=0)
        try:
            async with asyncio.timeout(until_s - time.monotonic()):
                await app.stop()
        except (TimeoutError, RuntimeError) as error:
            _leave(f"the Faust app did not stop: {error!r}; everything is written", code=0)
        job.close()
        log.info("stopped")


def _leave(why: str, *, code: int = _FAILED) -> None:
    """End the process now: neither Faust nor a thread that waits for the database may hold it."""
    log.log(logging.INFO if code == 0 else logging.CRITICAL, "%s", why)
    logging.shutdown()
    os._exit(code)
