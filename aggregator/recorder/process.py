"""The process of the recorder: settings, services, signals, exit codes. Records nothing itself."""

from __future__ import annotations

import signal
import threading
from collections.abc import Mapping
from types import FrameType

from aggregator.broker import LogUnavailable
from aggregator.config import AggregatorConfig
from aggregator.logs import configure
from aggregator.migrate import MigrationError
from aggregator.recorder.dead_letters import DeadLetterTopic
from aggregator.recorder.loop import Recorder
from aggregator.recorder.writer import Writer
from aggregator.start import StartFailed, wait_for_services
from aggregator.store import StoreRefused, StoreUnavailable
from aggregator.store_clickhouse import ClickHouseStore
from enforcer.clock import SystemClock
from enforcer.errors import ConfigError


def main(environ: Mapping[str, str] | None = None) -> int:
    """Run until SIGTERM or SIGINT: 0 then, 1 if it could not start or go on, 2 for wrong settings."""
    log = configure("recorder")
    try:
        config = AggregatorConfig.from_env(environ)
    except ConfigError as fault:
        log.error("%s", fault)  # noqa: TRY400  (the message is for the operator; a traceback would hide it)
        return 2
    stop = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    try:
        wait_for_services(config, log, stop)
        writer = Writer(lambda: ClickHouseStore.open(config.clickhouse), DeadLetterTopic(config.kafka, log), log)
        recorder = Recorder(config, writer, log, unix_us=SystemClock().unix_us)
        log.info("recording %s into %s as %s", config.kafka, config.clickhouse.address, config.recorder_group)
        recorder.run(stop)
    except (ConfigError, StartFailed, MigrationError, StoreRefused, StoreUnavailable, LogUnavailable) as fault:
        log.error("%s", fault)  # noqa: TRY400  (the message is for the operator; a traceback would hide it)
        return 1
    log.info("stopped; recorded %d decisions since the start", recorder.recorded_decisions)
    return 0
