"""The process of the recorder: settings, services, signals, exit codes. Records nothing itself."""

from __future__ import annotations

import time
from collections.abc import Mapping

from aggregator.broker import LogUnavailable
from aggregator.config import AggregatorConfig
from aggregator.logs import configure
from aggregator.migrate import MigrationError
from aggregator.recorder.dead_letters import DeadLetterTopic
from aggregator.recorder.erasures import Erasures
from aggregator.recorder.keeping import Keeping
from aggregator.recorder.loop import TOPICS_READ, Recorder
from aggregator.recorder.writer import Writer
from aggregator.start import StartFailed, stop_on_signal, wait_for_services
from aggregator.store import StoreRefused, StoreUnavailable
from aggregator.store_clickhouse import ClickHouseStore
from aggregator.topic_ids import TopicIds
from enforcer.clock import SystemClock
from enforcer.errors import ConfigError

#: How long to wait for the ids of topics, which are asked for once a flush.
_ASK_S = 2.0


def main(environ: Mapping[str, str] | None = None) -> int:
    """Run until SIGTERM or SIGINT: 0 then, 1 if it could not start or go on, 2 for wrong settings."""
    log = configure("recorder")
    try:
        config = AggregatorConfig.from_env(environ)
    except ConfigError as fault:
        log.error("%s", fault)  # noqa: TRY400  (the message is for the operator; a traceback would hide it)
        return 2
    stop = stop_on_signal()
    try:
        wait_for_services(config, log, stop)
        if not stop.is_set():
            Keeping(config, log).begin(stop)
        unix_us = SystemClock().unix_us
        topic, erasures = DeadLetterTopic(config.kafka, log), Erasures(time.monotonic)
        ids = TopicIds(config.kafka, timeout_s=_ASK_S)
        writer = Writer(
            lambda: ClickHouseStore.open(config.clickhouse),
            topic,
            log,
            unix_us=unix_us,
            erasures=erasures,
            log_ids=lambda: ids.of(TOPICS_READ),
        )
        recorder = Recorder(config, writer, log, unix_us=unix_us)
        log.info("recording %s into %s as %s", config.kafka, config.clickhouse.address, config.recorder_group)
        recorder.run(stop)
    except (ConfigError, StartFailed, MigrationError, StoreRefused, StoreUnavailable, LogUnavailable) as fault:
        log.error("%s", fault)  # noqa: TRY400  (the message is for the operator; a traceback would hide it)
        return 1
    log.info("stopped; recorded %d decisions since the start", recorder.recorded_decisions)
    return 0
