"""The named points at which a process under test can be killed or frozen, and how it is made to be.

The product knows nothing of them: ``python -m tests.chaos.run_at MODULE`` wraps one function of it before it starts.
"""

from __future__ import annotations

import functools
import importlib
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Act = Literal["kill", "freeze"]
_SIGNALS: Mapping[Act, signal.Signals] = {"kill": signal.SIGKILL, "freeze": signal.SIGSTOP}
_POINT, _ACT, _NTH, _MARK = "CHAOS_POINT", "CHAOS_ACT", "CHAOS_NTH", "CHAOS_MARK"


@dataclass(frozen=True, slots=True)
class Point:
    """A moment in a process: right after a function of it has returned.

    Attributes:
        name: as the tests and the reports call it.
        part: the process, as the stack calls it.
        module, function: what is wrapped; ``Class.method`` or a function of the module.
        without_broker: the process comes here only while the broker stands still.
        most: how often a process comes here within a minute or two, at least.
    """

    name: str
    part: str
    module: str
    function: str
    without_broker: bool = False
    most: int = 12


POINTS: Mapping[str, Point] = {
    point.name: point
    for point in (
        Point("spool written", "copy", "stream.spool.store", "SpoolStore.write", without_broker=True),
        Point("produced", "copy", "stream.outbox", "Outbox.handed_over"),
        Point("delivered", "copy", "stream.shipper", "Shipper.settle"),
        Point("inserted", "recorder", "aggregator.recorder.writer", "Writer._insert"),
        Point("recorder committed", "recorder", "aggregator.recorder.log_reader", "LogReader.commit"),
        Point("totals written", "worker", "aggregator.worker.table", "LiveStore.write"),
        Point("signals written", "signals", "aggregator.signals.table", "SignalsStore.write"),
        Point("minutes settled", "settler", "aggregator.settler.passes.minutes", "MinutesPass.settle", most=1),
        Point("settler committed", "settler", "aggregator.settler.table", "SettlingTables.write_progress", most=1),
    )
}


@dataclass(frozen=True, slots=True)
class Fault:
    """What is to happen at a point, when it is passed for the nth time."""

    point: Point
    act: Act
    nth: int = 1

    def environ(self, mark: Path) -> dict[str, str]:
        """The settings by which `arm` knows it; the file `mark` is there once it has happened."""
        return {_POINT: self.point.name, _ACT: self.act, _NTH: str(self.nth), _MARK: str(mark)}


def arm(environ: Mapping[str, str]) -> None:
    """Wrap the function of the point that the environment names; without one, do nothing."""
    name = environ.get(_POINT)
    if name is None:
        return
    point = POINTS[name]
    act: Act = "kill" if environ[_ACT] == "kill" else "freeze"
    left = int(environ[_NTH])
    holder: Any = importlib.import_module(point.module)
    *path, last = point.function.split(".")
    for part in path:
        holder = getattr(holder, part)
    wrapped = getattr(holder, last)

    @functools.wraps(wrapped)
    def passing(*args: Any, **named: Any) -> Any:
        nonlocal left
        outcome = wrapped(*args, **named)
        left -= 1
        if left == 0:
            Path(environ[_MARK]).touch()
            os.kill(os.getpid(), _SIGNALS[act])
        return outcome

    setattr(holder, last, passing)
