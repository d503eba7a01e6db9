"""The process around a Faust app, for both stages: starts the app, watches over it, and ends with the right code.

Whatever Faust does when something goes wrong inside it, the process does not stay behind looking alive: it ends, and
its supervisor starts it again. Holds no totals, and reads no message.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

import faust
from aiokafka.errors import KafkaError
from faust.exceptions import NotReady
from faust.types import TP

from aggregator.broker import LogUnavailable
from aggregator.config import AggregatorConfig
from aggregator.group.view import GroupView
from aggregator.logs import configure
from aggregator.migrate import MigrationError
from aggregator.start import StartFailed, wait_for_services
from aggregator.store import StoreRefused, StoreUnavailable
from aggregator.worker.part import FaustPart
from aggregator.worker.place import FaustPlace
from aggregator.worker.ports import FaustJob
from aggregator.worker.same_log import ANSWER_S, until_another
from aggregator.worker.thread import NotWanted
from enforcer.clock import SystemClock
from enforcer.errors import ConfigError

log = logging.getLogger("tallygate.worker")

_FAILED, _WRONG_SETTINGS = 1, 2
_TORN_LIMIT_S = 10.0
_POLL_S = 0.25
#: How long to wait until the consumer reads from elsewhere: nothing else is watched meanwhile.
_SEEK_S = 1.0
#: How long a stop may take, all in all. Supervisors often give fifteen seconds.
_STOP_S = 12.0
#: Of these, what is kept for leaving the group.
_APP_STOP_S = 4.0
#: What may be waited for after the last write.
_FINISH_S = 2.0


def run_process(name: str, kind: type[FaustProcess], environ: Mapping[str, str] | None) -> int:
    """Run a Faust process until SIGTERM or SIGINT; returns 0, 1 or 2, see `main`.

    A fault after the start ends the process at once, with code 1: an embedded Faust app cannot be relied on to stop.
    """
    configure(name)
    for library in ("faust", "mode", "aiokafka"):
        logging.getLogger(library).setLevel(logging.WARNING)
    try:
        config = AggregatorConfig.from_env(environ)
        return asyncio.run(kind(config).run())
    except ConfigError as fault:
        log.error("%s", fault)  # noqa: TRY400 - the settings are at fault, a trace would hide which
        return _WRONG_SETTINGS
    except (StartFailed, MigrationError, StoreRefused, StoreUnavailable, LogUnavailable) as fault:
        log.error("%s", fault)  # noqa: TRY400 - the message names the address and its setting
        return _FAILED


class FaustProcess(ABC):
    """One life of a process. Subclasses say what it does."""

    def __init__(self, config: AggregatorConfig) -> None:
        self._config = config
        self._stop = asyncio.Event()
        self._stop_waiting = threading.Event()
        #: Set once the app is about to join its group; `_given_up` is done when that has never answered.
        self._place: FaustPlace | None = None
        self._given_up: asyncio.Task[str] | None = None

    @abstractmethod
    async def _build(self) -> FaustPart:
        """Connect to the database and make the parts, inside the running loop; nothing is started."""

    async def run(self) -> int:
        """Run until a signal; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        await asyncio.to_thread(wait_for_services, self._config, log, self._stop_waiting)
        if self._stop.is_set():
            return 0
        part = await self._built()
        if part is None:
            return 0
        self._take_place(part)
        await self._start(part.app)
        writing = asyncio.create_task(part.job.run(part.flush_s))
        log.info("%s", part.said)
        another = asyncio.create_task(until_another(part.view.log_id, part.log_id))
        await self._watch(part, writing, another)
        another.cancel()
        if self._given_up is not None:
            self._given_up.cancel()
        await self._end(part.app, part.job, writing, finish=part.finish)
        part.close()
        return 0

    async def _built(self) -> FaustPart | None:
        """The parts; None if it was stopped meanwhile. What falls silent after it had answered is waited for, too."""
        until_s = time.monotonic() + self._config.start_timeout_s
        while not self._stop.is_set():
            try:
                return await self._build()
            except (StoreUnavailable, LogUnavailable) as fault:
                if time.monotonic() >= until_s:
                    raise
                log.warning("%s; asking again", fault)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), _POLL_S)
        return None

    def _take_place(self, part: FaustPart) -> None:
        """From now on the app's place in its group is watched over."""
        self._place = FaustPlace(
            part.app,
            GroupView(self._config.kafka, part.group, timeout_s=ANSWER_S),
            part.topic,
            session_timeout_ms=self._config.session_timeout_ms,
            log=log,
            now_s=time.monotonic,
        )
        self._given_up = asyncio.create_task(self._place.tend())

    async def _start(self, app: faust.App) -> None:
        """Start Faust, which waits for its broker as long as that takes; a stop ends the process meanwhile."""
        starting, stopped = asyncio.ensure_future(app.start()), asyncio.ensure_future(self._stop.wait())
        await asyncio.wait({starting, stopped, self._given_up or stopped}, return_when=asyncio.FIRST_COMPLETED)
        self._require_place()
        if not starting.done():
            _leave("stopped before the consumer had started; nothing was taken", code=0)
        stopped.cancel()
        try:
            starting.result()
        except Exception as error:  # noqa: BLE001 - whatever Faust raises here, the process must end and say so
            _leave(f"the consumer of Kafka at {self._config.kafka} (TALLYGATE_KAFKA) did not start: {error!r}")

    def _on_signal(self) -> None:
        self._stop.set()
        self._stop_waiting.set()

    async def _watch(self, part: FaustPart, writing: asyncio.Task[None], another: asyncio.Task[str]) -> None:
        """Return when the process is told to stop; end it at once if something in it has failed."""
        app, job = part.app, part.job
        while not self._stop.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), _POLL_S)
            if writing.done():
                _leave(f"writing failed: {writing.exception()!r}")
            if another.done():
                if another.exception() is not None:
                    _leave(f"asking for the topic's id failed: {another.exception()!r}")
                await self._leave_log(job, writing, f"{another.result()}, was {part.log_id}")
            self._require_place()
            if app.should_stop or app.crashed:
                _leave(f"the Faust app stopped by itself: {getattr(app, 'crash_reason', None)!r}")
            since_s = job.torn_since()
            if since_s is not None and time.monotonic() - since_s > _TORN_LIMIT_S:
                _leave(f"a message is missing in the delivery since {_TORN_LIMIT_S:.0f} s; a restart reads it again")
            await read_again(app, part.topic, job.torn())
            part.say()

    def _require_place(self) -> None:
        if self._given_up is not None and self._given_up.done():
            _leave(self._given_up.result())

    async def _leave_log(self, job: FaustJob, writing: asyncio.Task[None], ids: str) -> None:
        """Write what was read of a log that is gone, for nobody can read it again, and end: offsets begin anew."""
        job.stop_taking()
        until_s = time.monotonic() + _STOP_S - _APP_STOP_S
        with suppress(TimeoutError, NotWanted, StoreRefused):
            async with asyncio.timeout(_STOP_S - _APP_STOP_S):
                await writing
                await job.flush(wanted=lambda: time.monotonic() < until_s)
        _leave(f"the topic was deleted and made anew (its id is {ids}); a restart reads it from its beginning")

    async def _end(
        self,
        app: faust.App,
        job: FaustJob,
        writing: asyncio.Task[None],
        *,
        finish: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
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
                if finish is not None:
                    await finish(_FINISH_S)
        except (TimeoutError, NotWanted, StoreRefused) as error:
            log.warning("not everything could be written (%r); it is read again at the next start", error)
            _leave("stopped without the last totals", code=0)
        if self._place is not None and not await self._place.may_leave(until_s - _APP_STOP_S / 2):
            _leave("stopped without leaving the group, which is being formed or does not answer", code=0)
        try:
            async with asyncio.timeout(until_s - time.monotonic()):
                await app.stop()
        except (TimeoutError, RuntimeError) as error:
            _leave(f"the Faust app did not stop: {error!r}; everything is written", code=0)
        job.close()
        log.info("stopped")


async def read_again(app: faust.App, topic: str, torn: Mapping[int, int]) -> None:
    """Read on from each message that others came before: the embedded broker shows some a moment later than those."""
    if not torn:
        return
    try:
        async with asyncio.timeout(_SEEK_S):
            await app.consumer.seek_wait({TP(topic, partition): offset for partition, offset in torn.items()})
    except (TimeoutError, KafkaError, NotReady) as error:
        log.warning("what is missing in the delivery cannot be read again yet: %r", error)


def now_minute() -> int:
    """The unix minute."""
    return SystemClock.unix_us() // 60_000_000


def _leave(why: str, *, code: int = _FAILED) -> None:
    """End the process now: neither Faust nor a thread that waits for the database may hold it."""
    log.log(logging.INFO if code == 0 else logging.CRITICAL, "%s", why)
    logging.shutdown()
    os._exit(code)
