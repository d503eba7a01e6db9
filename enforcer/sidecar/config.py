"""The sidecar's own settings, read from the environment once, all faults at once. Opens nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from enforcer.errors import ConfigError

DEFAULT_LISTEN = "127.0.0.1:8320"
_ADDRESS = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")
_LEAST_TOKEN = 16
_MOST_TOKEN = 256
_MOST_PATH_BYTES = 100
_MOST_PORT = 65_535
#: What an end takes beside answering and closing: uvicorn looks every tenth of a second, and the record may say its
#: last words for a second and a half beyond its time.
_ENDING_S = 2.2
_NUMBERS = {
    "workers": ("TALLYGATE_SIDECAR_WORKERS", 1, 256),
    "connections": ("TALLYGATE_SIDECAR_CONNECTIONS", 1, 100_000),
    "timeout_ms": ("TALLYGATE_SIDECAR_TIMEOUT_MS", 100, 60_000),
    "idle_ms": ("TALLYGATE_SIDECAR_IDLE_MS", 100, 3_600_000),
    "stop_ms": ("TALLYGATE_SIDECAR_STOP_MS", 3_000, 600_000),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarConfig:
    """Where the sidecar listens, how many processes it has, who may ask, and what one client may take.

    Attributes:
        listen: ``host:port`` (port 0 takes a free one) or ``unix:/path`` (TALLYGATE_SIDECAR).
        workers: processes, each of them a copy of its own (TALLYGATE_SIDECAR_WORKERS).
        connections: most that one process has open; further ones get a 503 (TALLYGATE_SIDECAR_CONNECTIONS).
        timeout_ms: longest time that a request may take to arrive, or an answer to be taken
            (TALLYGATE_SIDECAR_TIMEOUT_MS).
        idle_ms: how long a connection is kept without a request (TALLYGATE_SIDECAR_IDLE_MS).
        stop_ms: longest time from SIGTERM to the end (TALLYGATE_SIDECAR_STOP_MS).
        token: what ``Authorization: Bearer`` must say; None: everyone who reaches it may ask (TALLYGATE_SIDECAR_TOKEN).
        metrics: ``host:port`` where each worker is watched: the first one there, the next on the port above, and so on
            (TALLYGATE_SIDECAR_METRICS). None: only a single worker can be, where it listens.
    """

    listen: str = DEFAULT_LISTEN
    workers: int = 1
    connections: int = 1_000
    timeout_ms: int = 5_000
    idle_ms: int = 75_000
    stop_ms: int = 5_000
    token: str | None = field(default=None, repr=False)
    metrics: str | None = None

    def __post_init__(self) -> None:
        """Raise `ConfigError`, which lists every setting that is not acceptable. Never shows the token."""
        faults = []
        if not _listens(self.listen):
            faults.append(f"TALLYGATE_SIDECAR is {self.listen!r}; allowed: host:port, or unix:/path")
        for attribute, (name, least, most) in _NUMBERS.items():
            value = getattr(self, attribute)
            if not least <= value <= most:
                faults.append(f"{name} is {value}; allowed: {least} to {most}")
        if self.token is not None and not (
            _LEAST_TOKEN <= len(self.token) <= _MOST_TOKEN and re.fullmatch("[!-~]+", self.token)
        ):
            faults.append(
                f"TALLYGATE_SIDECAR_TOKEN is {len(self.token)} characters long, or holds others than ASCII without "
                f"spaces; allowed: {_LEAST_TOKEN} to {_MOST_TOKEN} of these"
            )
        if self.metrics is not None and not _has_ports(self.metrics, self.workers):
            faults.append(
                f"TALLYGATE_SIDECAR_METRICS is {self.metrics!r}; allowed: host:port, with one for each worker"
            )
        if faults:
            raise ConfigError("; ".join(faults))

    @classmethod
    def from_env(
        cls, environ: Mapping[str, str] | None = None, *, listen: str | None = None, workers: int | None = None
    ) -> SidecarConfig:
        """Read the settings; what is given as an argument goes first, and empty counts as not set.

        Raises:
            ConfigError: names every setting that is wrong, its value and what is allowed.
        """
        environ = os.environ if environ is None else environ
        faults: list[str] = []

        def number(name: str, default: int) -> int:
            text = environ.get(name, "").strip()
            try:
                return int(text) if text else default
            except ValueError:
                faults.append(f"{name} is {text!r}; allowed: a whole number")
                return default

        defaults = cls()
        numbers = {one: number(name, getattr(defaults, one)) for one, (name, _, _) in _NUMBERS.items()}
        if workers is not None:
            numbers["workers"] = workers
        found_listen = environ.get("TALLYGATE_SIDECAR", "").strip() or DEFAULT_LISTEN
        try:
            config = cls(
                listen=found_listen if listen is None else listen,
                token=environ.get("TALLYGATE_SIDECAR_TOKEN") or None,
                metrics=environ.get("TALLYGATE_SIDECAR_METRICS", "").strip() or None,
                **numbers,
            )
        except ConfigError as error:
            said = str(error)
            # What was given on the command line is called so: the setting may not even be there.
            said = said if listen is None else said.replace("TALLYGATE_SIDECAR is", "--listen is", 1)
            said = said if workers is None else said.replace("TALLYGATE_SIDECAR_WORKERS is", "--workers is", 1)
            faults.append(said)
        if faults:
            raise ConfigError("; ".join(faults))
        return config

    @property
    def path(self) -> str | None:
        """The Unix socket's path; None for a port."""
        return self.listen.removeprefix("unix:") if self.listen.startswith("unix:") else None

    @property
    def answer_s(self) -> float:
        """How long an end waits for the answers that are under way: a fifth of it."""
        return self.stop_ms / 5e3

    @property
    def close_s(self) -> float:
        """How long an end works on settling grants and shipping the record."""
        return self.stop_ms / 1e3 - self.answer_s - _ENDING_S


def split_address(address: str) -> tuple[str, int]:
    """Host and port of a valid ``host:port``."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _listens(listen: str) -> bool:
    if listen.startswith("unix:"):
        path = listen.removeprefix("unix:")
        return path.startswith("/") and len(os.fsencode(path)) <= _MOST_PATH_BYTES
    found = _ADDRESS.fullmatch(listen)
    return found is not None and int(found["port"]) <= _MOST_PORT


def _has_ports(address: str, count: int) -> bool:
    found = _ADDRESS.fullmatch(address)
    return found is not None and (int(found["port"]) == 0 or int(found["port"]) + count - 1 <= _MOST_PORT)
