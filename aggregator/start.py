"""Waits at start until the broker and the database answer, and brings both into shape.

Never waits longer than it was told, and names the address and the setting of what did not answer.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

from aggregator.config import AggregatorConfig
from aggregator.migrate import migrate
from aggregator.outage import Outage
from aggregator.store import StoreUnavailable
from stream.admin import TopicsUnavailable, ensure_topics
from stream.append_time import ensure_append_time

_TRY_S = 5.0


class StartFailed(Exception):
    """Something did not answer within TALLYGATE_START_TIMEOUT_S."""


def stop_on_signal() -> threading.Event:
    """An event that SIGTERM and SIGINT set from now on, so that whoever looks at it ends in good order."""
    stop = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    return stop


def wait_for_services(config: AggregatorConfig, log: logging.Logger, stop: threading.Event) -> None:
    """Return once all topics exist and the tables are of this release; at once if `stop` is set.

    Raises:
        StartFailed: Kafka or ClickHouse did not answer in time.
        ConfigError: a topic has another partition count than TALLYGATE_PARTITIONS.
        MigrationError, StoreRefused: the database answered, and waiting will not help.
    """

    def topics() -> None:
        ensure_topics(config.kafka, partitions=config.partitions, timeout_s=_TRY_S)
        said = ensure_append_time(config.kafka, timeout_s=_TRY_S)
        if said is not None:
            log.warning("%s", said)

    until_s = time.monotonic() + config.start_timeout_s
    _wait_for(topics, "Kafka", "TALLYGATE_KAFKA", until_s=until_s, config=config, log=log, stop=stop)
    wait_for_tables(config, log, stop, until_s=until_s)


def wait_for_tables(
    config: AggregatorConfig, log: logging.Logger, stop: threading.Event, *, until_s: float | None = None
) -> None:
    """Return once all tables are of this release; at once if `stop` is set.

    Raises:
        StartFailed: ClickHouse did not answer in time.
        MigrationError, StoreRefused: it answered, and waiting will not help.
    """

    def tables() -> None:
        done = migrate(config.clickhouse)
        if done:
            log.info("applied migrations %s", ", ".join(f"{step.number:04d}_{step.name}" for step in done))

    latest_s = time.monotonic() + config.start_timeout_s if until_s is None else until_s
    _wait_for(tables, "ClickHouse", "TALLYGATE_CLICKHOUSE", until_s=latest_s, config=config, log=log, stop=stop)


def _wait_for(
    act: Callable[[], None],
    what: str,
    setting: str,
    *,
    until_s: float,
    config: AggregatorConfig,
    log: logging.Logger,
    stop: threading.Event,
) -> None:
    outage = Outage(f"waiting up to {config.start_timeout_s:g} s for it; its address is {setting}", log)
    try:
        _retry(act, f"{what} answers", outage, until_s, stop)
    except (StoreUnavailable, TopicsUnavailable) as fault:
        raise StartFailed(
            f"{fault}; gave up after {config.start_timeout_s:g} s (TALLYGATE_START_TIMEOUT_S), its address is {setting}"
        ) from fault


def _retry(act: Callable[[], None], what: str, outage: Outage, until_s: float, stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            act()
        except (StoreUnavailable, TopicsUnavailable) as fault:
            delay_s = outage.failed(fault)
            if time.monotonic() + delay_s > until_s:
                raise
            stop.wait(delay_s)
        else:
            outage.worked(what)
            return
