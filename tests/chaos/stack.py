"""Everything under test, on engines of its own: copies with a real owner, a broker, recorder, worker, database."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from stream.admin import ensure_topics
from tallygate.engines.apache_kafka import start_apache_kafka
from tallygate.engines.clickhouse import start_clickhouse
from tallygate.engines.kafka import BrokerKind
from tallygate.engines.tansu import start_tansu
from tallygate.engines.valkey import start_valkey
from tests.chaos.parts import Part
from tests.processes import freeze, kill, thaw

PARTITIONS = 4
_POLICY = """\
version: 1
plans:
  standard: {rate_per_s: 20, burst: 40}
default_plan: standard
scopes:
  GET /search: {cost: 1}
  GET /orders/{number}: {cost: 1}
  GET /reports/daily: {cost: 2}
fleet: {copies: 4, ceiling_per_s: 4000}
"""
#: Engines are frozen or killed by these names.
OWNER, BROKER, DATABASE = "owner", "broker", "database"
#: Processes of ours that read the log or the record, by the last name of their module.
READERS = ("recorder", "worker", "signals", "settler")


class Started(Protocol):
    """A running engine, whichever it is."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    @property
    def port(self) -> int:
        """Where it listens."""
        ...

    def stop(self) -> None:
        """End it."""
        ...


class Engine:
    """One engine under test, which can be frozen, and killed and started again where it was."""

    def __init__(self, start: Callable[[int], Started]) -> None:
        self._start = start
        self.running = start(0)

    @property
    def pid(self) -> int:
        """Of the process that runs now."""
        return self.running.pid

    def kill_and_restart(self) -> None:
        """End it as a crash would, and start it on the same port and folder."""
        kill(self.pid)
        self.running.stop()
        self.running = self._start(self.running.port)

    def freeze_for(self, seconds: float) -> None:
        """Stop it where it stands for so long."""
        freeze(self.pid)
        time.sleep(seconds)
        thaw(self.pid)

    def stop(self) -> None:
        """End what runs now."""
        self.running.stop()


@dataclass(slots=True)
class Stack:
    """What runs.

    Attributes:
        parts: our own processes by name; copies are ``copy-1`` and so on.
        engines: the owner, the broker and the database.
        dsn: where the database is.
        folder: where everything lies; a truth file for each epoch of each copy.
        copies: names of the parts that are copies.
    """

    parts: dict[str, Part]
    engines: dict[str, Engine]
    dsn: str
    folder: Path
    copies: list[str]

    @property
    def truths(self) -> list[Path]:
        """A file for each epoch of each copy."""
        return sorted(self.folder.glob("*.truth"))

    def named(self, part: str) -> Part:
        """A process by the name that points use: the first copy stands for all."""
        return self.parts[self.copies[0] if part == "copy" else part]

    def stop_copies(self) -> None:
        """End all copies in good order: what they decided is shipped, or kept on disk."""
        codes = {name: self.parts[name].end() for name in self.copies}
        assert all(code == 0 for code in codes.values()), f"a copy did not end in order: {codes}"


@contextmanager
def running_stack(folder: Path, *, broker: BrokerKind, copies: int, rate_per_s: float) -> Iterator[Stack]:
    """Start everything, and end whatever is left at the end; shows what was said if the block fails."""
    with ExitStack() as ends:
        engines = _start_engines(folder, broker, ends)
        log, database = engines[BROKER].running, engines[DATABASE].running
        bootstrap = f"127.0.0.1:{log.port}"
        dsn = f"http://127.0.0.1:{database.port}/tallygate"
        ensure_topics(bootstrap, partitions=PARTITIONS, timeout_s=30)
        environ = _environ(folder, bootstrap, dsn, engines[OWNER].running.port)
        parts: dict[str, Part] = {}
        for name in READERS:
            # What Faust keeps on disk must not be shared.
            own = {**environ, "TALLYGATE_STATE_DIR": str(folder / f"state-{name}")}
            parts[name] = Part(name, [f"aggregator.{name}"], own, folder)
            ends.callback(parts[name].stop)
        names = [f"copy-{number}" for number in range(1, copies + 1)]
        for number, name in enumerate(names):
            truth = f"{folder}/{name}-{{start}}.truth"
            words = ["tests.chaos.copy", "--truth", truth, "--rate", str(rate_per_s / copies), "--seed", str(number)]
            parts[name] = Part(name, words, {**environ, "TALLYGATE_COPY_ID": name}, folder)
            ends.callback(parts[name].stop)
        try:
            yield Stack(parts, engines, dsn, folder, names)
        except BaseException as fault:
            for part in parts.values():
                fault.add_note(f"{part.log_path.name} ends:\n{part.log_path.read_text()[-2000:]}")
            raise


def _start_engines(folder: Path, broker: BrokerKind, ends: ExitStack) -> dict[str, Engine]:
    places = {name: folder / name for name in (OWNER, BROKER, DATABASE)}
    for place in places.values():
        place.mkdir(parents=True)

    def start_broker(port: int) -> Started:
        place = places[BROKER]
        return start_apache_kafka(place, port) if broker == "apache" else start_tansu(port, log_dir=place)

    starts: dict[str, Callable[[int], Started]] = {
        OWNER: lambda port: start_valkey(port, log_dir=places[OWNER]),
        BROKER: start_broker,
        DATABASE: lambda port: start_clickhouse(places[DATABASE], port),
    }
    engines: dict[str, Engine] = {}
    for name, start in starts.items():
        engines[name] = Engine(start)
        ends.callback(engines[name].stop)
    return engines


def _environ(folder: Path, bootstrap: str, dsn: str, owner_port: int) -> dict[str, str]:
    policy = folder / "policy.yaml"
    policy.write_text(_POLICY)
    return {
        "TALLYGATE_KAFKA": bootstrap,
        "TALLYGATE_CLICKHOUSE": dsn,
        "TALLYGATE_PARTITIONS": str(PARTITIONS),
        "TALLYGATE_OWNER_URL": f"redis://127.0.0.1:{owner_port}/0",
        "TALLYGATE_POLICY": str(policy),
        # Takeover after a kill waits for the dead member's session to end.
        "TALLYGATE_SESSION_TIMEOUT_MS": "5000",
        "TALLYGATE_SETTLE_GRACE_S": "2",
        "TALLYGATE_SETTLE_ROUND_MS": "500",
        "TALLYGATE_SPOOL_DIR": str(folder / "spool"),
    }
