"""Settings of the log, read from the environment once, all faults told at once. Opens nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from enforcer.errors import ConfigError
from stream.buffer import BufferLimits
from stream.contract.layout import MAX_DECISIONS

_SERVER: Final = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})\Z")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """How a copy ships its record.

    Attributes:
        bootstrap: Kafka servers, ``host:port`` separated by commas (TALLYGATE_KAFKA).
        partitions: partition count of topics that do not exist yet (TALLYGATE_PARTITIONS).
        compression: ``lz4``, ``zstd`` or ``none`` (TALLYGATE_KAFKA_COMPRESSION).
        block_decisions: decisions at which a block is cut (TALLYGATE_BLOCK_DECISIONS).
        flush_s: longest wait of a decision for its block (TALLYGATE_FLUSH_S).
        heartbeat_s: an idle copy says so after this long (TALLYGATE_HEARTBEAT_S).
        hold_back_s: longest wait for a decision that other threads have overtaken (TALLYGATE_HOLD_BACK_S).
        max_held: most decisions held in memory while Kafka is away (TALLYGATE_MAX_HELD_DECISIONS).
        max_held_bytes: most bytes of sealed messages held in memory (TALLYGATE_MAX_HELD_BYTES).
        max_message_bytes: longest message before compression; the broker's ``message.max.bytes`` must allow it
            (TALLYGATE_MAX_MESSAGE_BYTES).
        spool_dir: folder for what Kafka does not take; None: there is no spool (TALLYGATE_SPOOL_DIR).
        spool_max_bytes: most bytes of a copy there (TALLYGATE_SPOOL_MAX_BYTES).
        spool_keep_free_bytes: bytes of its disk that are left free (TALLYGATE_SPOOL_KEEP_FREE_BYTES).
    """

    bootstrap: str = "127.0.0.1:19092"
    partitions: int = 4
    compression: str = "lz4"
    block_decisions: int = 2_000
    flush_s: float = 1.0
    heartbeat_s: float = 5.0
    hold_back_s: float = 2.0
    max_held: int = 1_000_000
    max_held_bytes: int = 64 * 1024 * 1024
    max_message_bytes: int = 512 * 1024
    spool_dir: Path | None = None
    spool_max_bytes: int = 1024 * 1024 * 1024
    spool_keep_free_bytes: int = 256 * 1024 * 1024

    def __post_init__(self) -> None:
        """Raise `ConfigError`, which lists every setting that is not acceptable."""
        faults = [fault for fault in (_bootstrap_fault(self.bootstrap), *self._range_faults()) if fault]
        if self.compression not in {"lz4", "zstd", "none"}:
            faults.append(f"TALLYGATE_KAFKA_COMPRESSION is {self.compression!r}; allowed: lz4, zstd, none")
        if faults:
            raise ConfigError("; ".join(faults))

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> StreamConfig:
        """Read the settings; an unset or empty one keeps its default. An empty TALLYGATE_SPOOL_DIR is no spool.

        Raises:
            ConfigError: names every setting that is wrong, its value and what is allowed.
        """
        given = _Reader(os.environ if environ is None else environ)
        values = {
            "bootstrap": given.read("TALLYGATE_KAFKA", str, "text"),
            "partitions": given.read("TALLYGATE_PARTITIONS", int, "a whole number"),
            "compression": given.read("TALLYGATE_KAFKA_COMPRESSION", str, "text"),
            "block_decisions": given.read("TALLYGATE_BLOCK_DECISIONS", int, "a whole number"),
            "flush_s": given.read("TALLYGATE_FLUSH_S", float, "a number of seconds"),
            "heartbeat_s": given.read("TALLYGATE_HEARTBEAT_S", float, "a number of seconds"),
            "hold_back_s": given.read("TALLYGATE_HOLD_BACK_S", float, "a number of seconds"),
            "max_held": given.read("TALLYGATE_MAX_HELD_DECISIONS", int, "a whole number"),
            "max_held_bytes": given.read("TALLYGATE_MAX_HELD_BYTES", int, "a whole number"),
            "max_message_bytes": given.read("TALLYGATE_MAX_MESSAGE_BYTES", int, "a whole number"),
            "spool_dir": given.folder("TALLYGATE_SPOOL_DIR"),
            "spool_max_bytes": given.read("TALLYGATE_SPOOL_MAX_BYTES", int, "a whole number"),
            "spool_keep_free_bytes": given.read("TALLYGATE_SPOOL_KEEP_FREE_BYTES", int, "a whole number"),
        }
        known = {name: value for name, value in values.items() if value is not None}
        try:
            config = cls(**known)  # type: ignore[arg-type]  # the names and types are those of the fields above
        except ConfigError as error:
            given.faults.append(str(error))
        if given.faults:
            raise ConfigError("; ".join(given.faults))
        return config

    @property
    def buffer_limits(self) -> BufferLimits:
        """The part that the buffer needs."""
        return BufferLimits(self.block_decisions, self.flush_s, self.heartbeat_s, self.hold_back_s, self.max_held)

    def _range_faults(self) -> list[str]:
        ranges: list[tuple[str, float, float, float]] = [
            ("TALLYGATE_PARTITIONS", self.partitions, 1, 10_000),
            ("TALLYGATE_BLOCK_DECISIONS", self.block_decisions, 1, MAX_DECISIONS),
            ("TALLYGATE_FLUSH_S", self.flush_s, 0.01, 60),
            ("TALLYGATE_HEARTBEAT_S", self.heartbeat_s, 0.1, 600),
            ("TALLYGATE_HOLD_BACK_S", self.hold_back_s, 0.01, 60),
            ("TALLYGATE_MAX_HELD_DECISIONS", self.max_held, 1, 10**9),
            ("TALLYGATE_MAX_HELD_BYTES", self.max_held_bytes, 1_000_000, 2**40),
            ("TALLYGATE_MAX_MESSAGE_BYTES", self.max_message_bytes, 10_000, 8 * 1024 * 1024),
            ("TALLYGATE_SPOOL_MAX_BYTES", self.spool_max_bytes, 1_000, 2**40),
            ("TALLYGATE_SPOOL_KEEP_FREE_BYTES", self.spool_keep_free_bytes, 0, 2**40),
        ]
        # A comparison with NaN is false, so that it is a fault as well.
        return [
            f"{name} is {value}; allowed: {low:g} to {high:g}"
            for name, value, low, high in ranges
            if not low <= value <= high
        ]


class _Reader:
    """Reads settings one by one and keeps what was wrong with them."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.faults: list[str] = []

    def folder(self, name: str) -> Path | None:
        """A folder; the default if it is not set, none if it is empty."""
        text = self._environ.get(name)
        if text is None:
            return default_spool_dir(self._environ)
        if "\0" in text:
            self.faults.append(f"{name} is {text!r}; allowed: the path of a folder, or nothing")
            return None
        return Path(text.strip()).absolute() if text.strip() else None

    def read(self, name: str, convert: Callable[[str], _T], allowed: str) -> _T | None:
        text = self._environ.get(name, "").strip()
        if not text:
            return None
        try:
            return convert(text)
        except ValueError:
            self.faults.append(f"{name} is {text!r}; allowed: {allowed}")
            return None


def default_spool_dir(environ: Mapping[str, str]) -> Path | None:
    """Where programs of this user keep what must outlive them; None if the user has no such place."""
    state = environ.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):
        home = environ.get("HOME", "")
        state = f"{home}/.local/state" if home.startswith("/") else ""
    return Path(state, "tallygate", "spool") if state else None


def _bootstrap_fault(bootstrap: str) -> str | None:
    for server in bootstrap.split(","):
        match = _SERVER.match(server.strip())
        if match is None or not 1 <= int(match[1]) <= 65_535:
            shown = "(not shown: it has an @)" if "@" in bootstrap else repr(bootstrap)
            return f"TALLYGATE_KAFKA is {shown}; allowed: host:port, several of them separated by commas"
    return None
