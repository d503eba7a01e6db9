"""Everything on this machine: engines, topics, tables, our own processes and the pages, as children of this process.

Local and throw-away by default; not a way to run in production, where each part is a service of its own.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

from aggregator.migrate import MigrationError, migrate
from aggregator.store import StoreRefused, StoreUnavailable
from stream.admin import TopicsMismatch, TopicsUnavailable, ensure_topics
from tallygate.config import announced, current_environ, secret_from
from tallygate.ending import held
from tallygate.engines.apache_kafka import start_apache_kafka
from tallygate.engines.clickhouse import ClickHouse, start_clickhouse
from tallygate.engines.errors import EngineError, EngineFailed, PortTaken
from tallygate.engines.kafka import KafkaBroker
from tallygate.engines.ports import claim_port
from tallygate.engines.process import Child, Command, accepts_connections, describe_exit, spawn, stop_all
from tallygate.engines.tansu import start_tansu
from tallygate.engines.valkey import Valkey, start_valkey
from tallygate.scratch import Scratch
from tallygate.supervision import Service

HOST = "127.0.0.1"
_READY_S = 60.0
_STOP_SERVICES_S = 2.5
_STOP_ENGINES_S = 1.5
#: Engines whose data goes with them need no orderly end.
_STOP_DISPOSABLE_S = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class StackOptions:
    """What a stack is made of. A port of 0 takes a free one.

    Attributes:
        broker: ``embedded`` keeps the log in memory; ``kafka`` is Apache Kafka.
        data_dir: where the log and the tables stay after the end; needs ``broker="kafka"``, because tables that
            outlive their log would take new positions in it for old ones. None: a temporary folder.
        partitions: of every topic.
        workers: how many Faust workers.
    """

    owner_port: int = 16379
    kafka_port: int = 19092
    clickhouse_port: int = 18123
    dashboard_port: int = 8321
    broker: Literal["embedded", "kafka"] = "embedded"
    data_dir: Path | None = None
    partitions: int = 4
    workers: int = 1

    def __post_init__(self) -> None:
        """Raise `EngineError` where the parts do not fit together."""
        if self.data_dir is not None and self.broker == "embedded":
            raise EngineError("--data-dir needs --broker kafka: the embedded broker keeps its log in memory only")
        if not 1 <= self.workers <= self.partitions <= 1_024:
            raise EngineError(
                f"--workers is {self.workers} and --partitions is {self.partitions}; allowed: at least 1, at most "
                "1,024, and no more workers than partitions"
            )


class LocalStack:
    """All parts, started in order and stopped together. A context manager; never started twice."""

    def __init__(self, options: StackOptions | None = None, *, say: Callable[[str], None] | None = None) -> None:
        self.options = options or StackOptions()
        self._say = say or _to_stderr
        self._inherited = current_environ()
        self.secret = secret_from(self._inherited)
        self._scratch: Scratch | None = None
        self._folder = Path()
        self._ports: dict[str, int] = {}
        self._engines: list[Child] = []
        self._services: list[Service] = []

    @property
    def environ(self) -> dict[str, str]:
        """The ``TALLYGATE_…`` settings of a process that belongs to this stack; complete once it has started."""
        settings = {
            "TALLYGATE_OWNER_URL": f"redis://{HOST}:{self._ports['owner']}/0",
            "TALLYGATE_KAFKA": f"{HOST}:{self._ports['kafka']}",
            "TALLYGATE_PARTITIONS": str(self.options.partitions),
            "TALLYGATE_CLICKHOUSE": f"http://{HOST}:{self._ports['clickhouse']}/tallygate",
            "TALLYGATE_DASHBOARD": f"{HOST}:{self._ports['dashboard']}",
            "TALLYGATE_SECRET": self.secret,
            "TALLYGATE_STATE_DIR": str(self._folder / "worker"),
            "TALLYGATE_SPOOL_DIR": str((self.options.data_dir or self._folder) / "spool"),
        }
        if self.options.broker == "embedded":
            # It holds a fetch to the end of its time, and the client's own is 1.5 s: the pages would be that late.
            settings["TALLYGATE_FETCH_WAIT_MS"] = "100"
        return settings

    @property
    def dashboard_url(self) -> str:
        """Where the pages are."""
        return f"http://{HOST}:{self._ports['dashboard']}"

    @property
    def log_dir(self) -> Path:
        """Where every process writes its log."""
        return self._folder

    @property
    def processes(self) -> Mapping[str, int]:
        """The process id of each running part, by name."""
        running = [*self._engines, *(service.child for service in self._services if service.child is not None)]
        return {child.name: child.pid for child in running}

    def start(self) -> None:
        """Start everything, and return once the pages are served.

        Raises:
            PortTaken: before anything is started.
            EngineError: a part is missing or did not come up; what had started is stopped.
        """
        self._claim_ports()
        with held():
            self._scratch = Scratch()
            self._folder = self._scratch.path
        try:
            self._start_engines()
            self._prepare()
            self._start_services()
        except BaseException:
            self.stop()
            raise

    def check(self) -> None:
        """Start again what has crashed of our own processes. Call it a few times a second.

        Raises:
            EngineFailed: an engine has ended; nothing can go on without it.
        """
        for engine in self._engines:
            code = engine.exit_code()
            if code is not None:
                tail = engine.log_tail()
                raise EngineFailed(f"{engine.name} ended with {describe_exit(code)}; everything ends. Its log:\n{tail}")
        for service in self._services:
            service.check()

    def stop(self) -> None:
        """Stop everything within five seconds and remove the temporary folder. Safe to call twice."""
        children = [service.child for service in self._services if service.child is not None]
        self._services = []
        stop_all(children, timeout_s=_STOP_SERVICES_S)
        # The engines after those that write to them.
        stop_all(self._engines, timeout_s=_STOP_ENGINES_S if self.options.data_dir else _STOP_DISPOSABLE_S)
        self._engines = []
        if self._scratch is not None:
            self._scratch.remove()

    def __enter__(self) -> LocalStack:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _claim_ports(self) -> None:
        wanted = {
            "owner": (self.options.owner_port, "Valkey", "--owner-port"),
            "kafka": (self.options.kafka_port, "Kafka", "--kafka-port"),
            "clickhouse": (self.options.clickhouse_port, "ClickHouse", "--clickhouse-port"),
            "dashboard": (self.options.dashboard_port, "the pages", "--dashboard-port"),
        }
        taken: list[str] = []
        # Those that were asked for come first, so that no free one is drawn that is one of them.
        for name, (port, purpose, flag) in sorted(wanted.items(), key=lambda item: item[1][0] == 0):
            try:
                chosen = claim_port(port, purpose=purpose, setting=flag, host=HOST)
                while port == 0 and chosen in self._ports.values():
                    chosen = claim_port(port, purpose=purpose, setting=flag, host=HOST)
            except PortTaken as fault:
                taken.append(str(fault))
                continue
            if chosen in self._ports.values():
                raise EngineError(f"{flag} is {chosen}, which is another part's port already")
            self._ports[name] = chosen
        if taken:
            raise PortTaken(_explain_taken(taken))

    def _start_engines(self) -> None:
        self._say("starting Valkey, Kafka and ClickHouse …")
        starters: tuple[Callable[[], Valkey | KafkaBroker | ClickHouse], ...]
        starters = (self._start_valkey, self._start_broker, self._start_clickhouse)
        pool = ThreadPoolExecutor(len(starters))
        starting: list[Future[None]] = []
        try:
            # A thread whose start is interrupted is one that the pool does not know, and does not wait for.
            with held():
                starting.extend(pool.submit(self._start_engine, start) for start in starters)
            wait(starting)
        finally:
            # Also after Ctrl-C: what starts must be known, to be stopped, and nothing may start after that.
            with held():
                pool.shutdown(cancel_futures=True)
        for future in starting:
            future.result()

    def _start_engine(self, start: Callable[[], Valkey | KafkaBroker | ClickHouse]) -> None:
        self._engines.append(start().child)

    def _start_valkey(self) -> Valkey:
        return start_valkey(self._ports["owner"], log_dir=self._folder, setting="--owner-port")

    def _start_clickhouse(self) -> ClickHouse:
        kept = self.options.data_dir or self._folder
        return start_clickhouse(kept / "clickhouse", self._ports["clickhouse"], setting="--clickhouse-port")

    def _start_broker(self) -> KafkaBroker:
        port = self._ports["kafka"]
        if self.options.broker == "embedded":
            return start_tansu(port, log_dir=self._folder, setting="--kafka-port")
        kept = self.options.data_dir or self._folder
        return start_apache_kafka(kept / "kafka", port, setting="--kafka-port")

    def _prepare(self) -> None:
        self._say("creating topics and tables …")
        settings = self.environ
        try:
            ensure_topics(settings["TALLYGATE_KAFKA"], partitions=self.options.partitions, timeout_s=30)
            migrate(settings["TALLYGATE_CLICKHOUSE"])
        except (TopicsMismatch, TopicsUnavailable, MigrationError, StoreRefused, StoreUnavailable) as error:
            raise EngineFailed(str(error)) from error

    def _start_services(self) -> None:
        self._say("starting recorder, workers, settler and pages …")
        modules = {
            "recorder": "aggregator.recorder",
            "dashboard": "dashboard.serve",
            "signals": "aggregator.signals",
            "settler": "aggregator.settler",
        }
        for number in range(1, self.options.workers + 1):
            modules["worker" if number == 1 else f"worker {number}"] = "aggregator.worker"
        for name, module in modules.items():
            self._services.append(self._service(name, module))
        for service in self._services:
            with held():
                service.start()
        pages = self._services[1].child
        if pages is not None:
            pages.wait_ready(lambda: accepts_connections(HOST, self._ports["dashboard"]), timeout_s=_READY_S)

    def _service(self, name: str, module: str) -> Service:
        # Workers must not share what Faust keeps on disk.
        own = {"TALLYGATE_STATE_DIR": str(self._folder / name.replace(" ", "-"))}
        command = Command(
            name,
            [sys.executable, "-m", module],
            self._folder / f"{name.replace(' ', '-')}.log",
            {**self._inherited, **self.environ, **own},
        )
        return Service(name, lambda: spawn(command), now_s=time.monotonic, say=self._say)


def _explain_taken(faults: list[str]) -> str:
    """One message about all ports that are taken, which begins with what usually holds them."""
    running = announced()
    if not running:
        return "\n".join(faults)
    pages = " and ".join(stack.dashboard_url for stack in running)
    already = f"`tallygate up` is already running: its pages are at {pages}; end it with Ctrl-C in its"
    return "\n  ".join((f"{already} terminal", *faults))


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"tallygate: {line}\n")
    sys.stderr.flush()
