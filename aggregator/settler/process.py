"""The process of the settler: settings, signals, passes, exit codes. Counts nothing itself."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping

from aggregator.config import AggregatorConfig
from aggregator.core.fairness import replay
from aggregator.logs import configure
from aggregator.migrate import MigrationError
from aggregator.settler.loop import Settler
from aggregator.settler.passes.due import Pass
from aggregator.settler.passes.fairness import Fairness
from aggregator.settler.passes.ledger import Ledger
from aggregator.settler.passes.minutes import MinutesPass
from aggregator.settler.passes.totals import Totals
from aggregator.start import StartFailed, stop_on_signal, wait_for_tables
from aggregator.store import ColumnStore, StoreRefused, StoreUnavailable
from aggregator.store_clickhouse import ClickHouseStore
from enforcer.clock import SystemClock
from enforcer.errors import ConfigError

#: A recount reads what a minute, or many late ones, hold of everybody: longer than other statements take.
_ANSWER_S = 600.0
#: How long a stop may take. What is under way then is cut off: it is repeated at the next start, as after a crash.
_STOP_S = 8.0
_LOOK_S = 0.2


def passes() -> list[Pass]:
    """What is computed of each closed minute, in this order."""
    return [MinutesPass([Totals(), Ledger()], Fairness())]


def main(environ: Mapping[str, str] | None = None) -> int:
    """Run until SIGTERM or SIGINT: 0 then, 1 if it could not start or go on, 2 for wrong settings."""
    log = configure("settler")
    try:
        config = AggregatorConfig.from_env(environ)
    except ConfigError as fault:
        log.error("%s", fault)  # noqa: TRY400  (the message is for the operator; a traceback would hide it)
        return 2
    say_replay(log, replay.COMPILED)
    # On a machine that has no time for both, live figures stay fresh, and the settler catches up later.
    os.nice(max(0, config.settle_nice - os.nice(0)))
    stop = stop_on_signal()

    def open_store() -> ColumnStore:
        return ClickHouseStore.open(config.clickhouse, answer_timeout_s=_ANSWER_S, nice=config.settle_nice)

    try:
        wait_for_tables(config, log, stop)
        settler = Settler(config, open_store, passes(), log, unix_us=SystemClock().unix_us)
        log.info("settling %s", config.clickhouse.address)
        finished = _run(settler, stop)
    except (StartFailed, MigrationError, StoreRefused, StoreUnavailable) as fault:
        log.error("%s", fault)  # noqa: TRY400  (the message is for the operator; a traceback would hide it)
        return 1
    log.info(
        "stopped%s; settled %d minutes since the start",
        "" if finished else " in the middle of a round, which the next start repeats",
        settler.settled_minutes,
    )
    if not finished:
        # The interpreter would end the thread inside compiled code, which aborts the process instead.
        logging.shutdown()
        os._exit(0)
    return 0


def say_replay(log: logging.Logger, compiled: replay.Replayer | None) -> None:
    """Say which replay this installation has: of a slow one, nothing else shows why settling falls behind."""
    if compiled is not None:
        log.info("buckets are replayed by the compiled module")
        return
    log.warning(
        "buckets are replayed in Python, a hundred times slower than compiled: this installation was built without a C "
        "compiler. Above some 50,000 decisions/s settled totals will fall behind (docs/fairness.md, what it costs)"
    )


def _run(settler: Settler, stop: threading.Event) -> bool:
    """Run it in a thread, so that a database that takes its time cannot hold up a stop; whether it came to its end."""
    faults: list[BaseException] = []

    def work() -> None:
        try:
            settler.run(stop)
        except BaseException as fault:  # noqa: BLE001  (handed to the main thread, which raises it)
            faults.append(fault)

    thread = threading.Thread(target=work, name="settler", daemon=True)
    thread.start()
    while thread.is_alive() and not stop.is_set():
        thread.join(_LOOK_S)
    until_s = time.monotonic() + _STOP_S
    while thread.is_alive() and time.monotonic() < until_s:
        thread.join(_LOOK_S)
    if faults:
        raise faults[0]
    return not thread.is_alive()
