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


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarConfig:
    """Where the sidecar listens, how many processes it has, and who may ask.

    Attributes:
        listen: ``host:port`` (port 0 takes a free one) or ``unix:/path`` (TALLYGATE_SIDECAR).
        workers: processes, each of them a copy of its own (TALLYGATE_SIDECAR_WORKERS).
        timeout_ms: longest time that a request may take to arrive, or an idle connection is kept
            (TALLYGATE_SIDECAR_TIMEOUT_MS).
        token: what ``Authorization: Bearer`` must say; None: everyone who reaches it may ask (TALLYGATE_SIDECAR_TOKEN).
    """

    listen: str = DEFAULT_LISTEN
    workers: int = 1
    timeout_ms: int = 5_000
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Raise `ConfigError`, which lists every setting that is not acceptable. Never shows the token."""
        faults = []
        if not _listens(self.listen):
            faults.append(f"TALLYGATE_SIDECAR is {self.listen!r}; allowed: host:port, or unix:/path")
        if not 1 <= self.workers <= 256:
            faults.append(f"TALLYGATE_SIDECAR_WORKERS is {self.workers}; allowed: 1 to 256")
        if not 100 <= self.timeout_ms <= 60_000:
            faults.append(f"TALLYGATE_SIDECAR_TIMEOUT_MS is {self.timeout_ms}; allowed: 100 to 60000")
        if self.token is not None and not (
            _LEAST_TOKEN <= len(self.token) <= _MOST_TOKEN and re.fullmatch("[!-~]+", self.token)
        ):
            faults.append(
                f"TALLYGATE_SIDECAR_TOKEN is {len(self.token)} characters long, or holds others than ASCII without "
                f"spaces; allowed: {_LEAST_TOKEN} to {_MOST_TOKEN} of these"
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

        found_workers = number("TALLYGATE_SIDECAR_WORKERS", 1)
        timeout_ms = number("TALLYGATE_SIDECAR_TIMEOUT_MS", 5_000)
        found_listen = environ.get("TALLYGATE_SIDECAR", "").strip() or DEFAULT_LISTEN
        token = environ.get("TALLYGATE_SIDECAR_TOKEN") or None
        try:
            config = cls(
                listen=listen or found_listen, workers=workers or found_workers, timeout_ms=timeout_ms, token=token
            )
        except ConfigError as error:
            faults.append(str(error))
        if faults:
            raise ConfigError("; ".join(faults))
        return config

    @property
    def path(self) -> str | None:
        """The Unix socket's path; None for a port."""
        return self.listen.removeprefix("unix:") if self.listen.startswith("unix:") else None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port, where it is not a Unix socket."""
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)


def _listens(listen: str) -> bool:
    if listen.startswith("unix:"):
        path = listen.removeprefix("unix:")
        return path.startswith("/") and len(os.fsencode(path)) <= _MOST_PATH_BYTES
    found = _ADDRESS.fullmatch(listen)
    return found is not None and int(found["port"]) <= 65_535
