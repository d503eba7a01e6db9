"""The settings of recorder, worker, second stage and settler: read once, all faults reported at once.

Never connects to anything, and never shows a password.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from aggregator.retention.tiers import Keep
from enforcer.core.anonymous import ANONYMOUS
from enforcer.errors import ConfigError

_DATABASE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")
_GROUP = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_BROKER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})\Z")
_DEFAULT_PORTS = {"http": 8123, "https": 8443}
_SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class ClickHouseDsn:
    """Where ClickHouse is: ``http://user:password@host:port/database``, or the same with ``https``."""

    host: str
    port: int
    database: str
    user: str = "default"
    password: str = field(default="", repr=False)
    secure: bool = False

    @property
    def address(self) -> str:
        """The address as it may be shown: without user and password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{host}:{self.port}/{self.database}"


def parse_dsn(text: str, *, setting: str = "TALLYGATE_CLICKHOUSE") -> ClickHouseDsn:
    """Read a ClickHouse address.

    Raises:
        ConfigError: it is not one; names every part that is wrong, its value and what is allowed, never the password.
    """
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError:
        raise ConfigError(f"{setting}: the port is not a number from 1 to 65535") from None
    database = unquote(parts.path.removeprefix("/"))
    faults = _dsn_faults(parts, port, database)
    if faults:
        raise ConfigError(f"{setting}: " + "; ".join(faults))
    return ClickHouseDsn(
        host=parts.hostname or "",
        port=port if port is not None else _DEFAULT_PORTS[parts.scheme],
        database=database,
        user=unquote(parts.username or "") or "default",
        password=unquote(parts.password or ""),
        secure=parts.scheme == "https",
    )


def _dsn_faults(parts: SplitResult, port: int | None, database: str) -> list[str]:
    """What is wrong with an address, part by part."""
    faults = []
    if parts.scheme not in _DEFAULT_PORTS:
        faults.append(
            f"scheme is {_shown(parts.scheme)}; allowed: http or https, as in http://127.0.0.1:8123/tallygate"
        )
    if not parts.hostname:
        faults.append("host is missing; allowed: a name or an address after ://")
    if port == 0:
        faults.append("port is 0; allowed: 1 to 65535")
    if _DATABASE.match(database) is None:
        faults.append(
            f"database is {_shown(database)}; allowed: one name of A-Z a-z 0-9 _ after the port, no digit first"
        )
    if parts.query or parts.fragment:
        faults.append("there is something after the database; allowed: nothing")
    return faults


@dataclass(frozen=True, slots=True)
class AggregatorConfig:
    """Everything that the recorder, the worker, the second stage and the settler are told.

    Attributes:
        kafka: bootstrap servers, ``host:port`` separated by commas.
        clickhouse: where the tables are.
        partitions: partition count of every topic.
        recorder_group, worker_group: consumer groups; the worker's is its Faust application id.
        session_timeout_ms: after so long without a sign of life another process takes over its partitions.
        flush_ms: the recorder (and the worker) write at the latest this long after the first unwritten block.
        flush_decisions: the recorder writes at the latest when it holds so many decisions.
        flush_bytes: the same for the memory that everything it holds occupies, as it is reckoned (`core.pending`). It
            holds two such flushes: one that is being written and one that is being filled.
        state_dir: where the worker keeps what Faust wants on disk; nothing that counts.
        start_timeout_s: how long to wait at start for Kafka and ClickHouse before giving up.
        worker_flush_ms: the worker writes what changed this often.
        signals_group: consumer group of the second stage.
        signals_flush_ms: the second stage writes what changed this often.
        signals_floor: requests a minute from which a caller without refusals has rows of its own in `signals`.
        anonymous_caller: how the policy calls the callers that nobody named.
        fetch_wait_ms: how long the broker may hold back an answer to the worker for want of data; 0 leaves Faust's
            own 1,500 ms. For the embedded broker, which holds it to the end; Apache Kafka needs no other value.
        settle_grace_s: a minute is settled so long after its end, when its last blocks have come.
        settle_round_ms: the settler looks at the journal this often.
        settle_days: minutes older than this are not recounted; see `recounted_days`.
        settle_nice: how far the settler, and its statements in the database, stand back for others.
        keep: how long each tier of the record is kept; the recorder applies it at its start.
    """

    kafka: str
    clickhouse: ClickHouseDsn
    partitions: int
    recorder_group: str
    worker_group: str
    session_timeout_ms: int
    flush_ms: int
    flush_decisions: int
    state_dir: Path
    start_timeout_s: float
    worker_flush_ms: int = 1_000
    fetch_wait_ms: int = 0
    flush_bytes: int = 256 * 1024 * 1024
    settle_grace_s: int = 30
    settle_round_ms: int = 5_000
    settle_days: int = 13
    settle_nice: int = 10
    keep: Keep = field(default_factory=Keep)
    signals_group: str = "tallygate-signals"
    signals_flush_ms: int = 1_000
    signals_floor: int = 60
    anonymous_caller: str = ANONYMOUS

    @property
    def recounted_days(self) -> int:
        """How old a minute may be to be recounted; never older than all of its raw decisions are kept."""
        return min(self.settle_days, self.keep.admitted_days)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> AggregatorConfig:
        """Read the ``TALLYGATE_…`` settings; what is absent or empty has the default that `tallygate up` serves.

        Raises:
            ConfigError: one or more settings are wrong; the message names all of them.
        """
        read = _Reader(os.environ if environ is None else environ)
        config = cls(
            kafka=read.kafka("TALLYGATE_KAFKA", "127.0.0.1:19092"),
            clickhouse=read.dsn("TALLYGATE_CLICKHOUSE", "http://127.0.0.1:18123/tallygate"),
            partitions=read.whole("TALLYGATE_PARTITIONS", 4, low=1, high=1024),
            recorder_group=read.group("TALLYGATE_RECORDER_GROUP", "tallygate-recorder"),
            worker_group=read.group("TALLYGATE_WORKER_GROUP", "tallygate-worker"),
            session_timeout_ms=read.whole("TALLYGATE_SESSION_TIMEOUT_MS", 10_000, low=1_000, high=300_000),
            flush_ms=read.whole("TALLYGATE_FLUSH_MS", 800, low=10, high=60_000),
            flush_decisions=read.whole("TALLYGATE_FLUSH_DECISIONS", 500_000, low=1, high=1_000_000),
            state_dir=Path(read.text("TALLYGATE_STATE_DIR", ".tallygate")),
            start_timeout_s=float(read.whole("TALLYGATE_START_TIMEOUT_S", 60, low=0, high=86_400)),
            worker_flush_ms=read.whole("TALLYGATE_WORKER_FLUSH_MS", 1_000, low=50, high=60_000),
            fetch_wait_ms=read.whole("TALLYGATE_FETCH_WAIT_MS", 0, low=0, high=10_000),
            flush_bytes=read.whole("TALLYGATE_FLUSH_BYTES", 256 * 1024 * 1024, low=1_000_000, high=2**36),
            settle_grace_s=read.whole("TALLYGATE_SETTLE_GRACE_S", 30, low=0, high=3_600),
            settle_round_ms=read.whole("TALLYGATE_SETTLE_ROUND_MS", 5_000, low=50, high=60_000),
            settle_days=read.whole("TALLYGATE_SETTLE_DAYS", 13, low=1, high=400),
            settle_nice=read.whole("TALLYGATE_SETTLE_NICE", 10, low=0, high=19),
            keep=Keep(
                admitted_days=read.whole("TALLYGATE_KEEP_ADMITTED_DAYS", 14, low=1, high=10_000),
                refused_days=read.whole("TALLYGATE_KEEP_REFUSED_DAYS", 90, low=1, high=10_000),
                minutes_days=read.whole("TALLYGATE_KEEP_MINUTES_DAYS", 400, low=1, high=10_000),
                days_years=read.whole("TALLYGATE_KEEP_DAYS_YEARS", 10, low=1, high=100),
            ),
            signals_group=read.group("TALLYGATE_SIGNALS_GROUP", "tallygate-signals"),
            signals_flush_ms=read.whole("TALLYGATE_SIGNALS_FLUSH_MS", 1_000, low=50, high=60_000),
            signals_floor=read.whole("TALLYGATE_SIGNALS_FLOOR", 60, low=1, high=1_000_000),
            anonymous_caller=read.text("TALLYGATE_ANONYMOUS_CALLER", ANONYMOUS),
        )
        if read.faults:
            raise ConfigError(
                f"{len(read.faults)} wrong setting(s)\n" + "\n".join(f"  {fault}" for fault in read.faults)
            )
        return config


class _Reader:
    """Reads settings one by one, and keeps the faults."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.faults: list[str] = []

    def text(self, name: str, default: str) -> str:
        return self._environ.get(name, "").strip() or default

    def whole(self, name: str, default: int, *, low: int, high: int) -> int:
        text = self.text(name, str(default))
        number = int(text) if re.fullmatch(r"[0-9]{1,12}", text) else -1
        if not low <= number <= high:
            self.faults.append(f"{name} is {_shown(text)}; allowed: a whole number from {low:,} to {high:,}")
            return default
        return number

    def group(self, name: str, default: str) -> str:
        text = self.text(name, default)
        if _GROUP.match(text) is None:
            self.faults.append(f"{name} is {_shown(text)}; allowed: 1 to 128 characters of A-Z a-z 0-9 . _ -")
        return text

    def kafka(self, name: str, default: str) -> str:
        text = self.text(name, default)
        for server in text.split(","):
            match = _BROKER.match(server.strip())
            if match is None or not 1 <= int(match.group(2)) <= 65_535:
                self.faults.append(f"{name} is {_shown(text)}; allowed: host:port, or several separated by commas")
                break
        return text

    def dsn(self, name: str, default: str) -> ClickHouseDsn:
        try:
            return parse_dsn(self.text(name, default), setting=name)
        except ConfigError as fault:
            self.faults.append(str(fault))
            return parse_dsn(default)


def _shown(value: str) -> str:
    """A value as it may stand in a message: what stands before an ``@`` may be a password."""
    if "@" in value:
        return "(not shown: it has an @)"
    return repr(value) if len(value) <= _SHOWN_CHARACTERS else f"{value[:_SHOWN_CHARACTERS]!r}… ({len(value):,} long)"
