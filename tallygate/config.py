"""What the command takes from the environment, and what its children inherit. Reads it once, and only here."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from enforcer.errors import ConfigError
from tallygate.engines.config import cache_root

#: The part of a local stack that each address belongs to.
_ADDRESSES = {
    "owner": "TALLYGATE_OWNER_URL",
    "kafka": "TALLYGATE_KAFKA",
    "clickhouse": "TALLYGATE_CLICKHOUSE",
    "dashboard": "TALLYGATE_DASHBOARD",
}
_LOCAL = re.compile(r"(?:[a-z]+://)?(?:127\.0\.0\.1|localhost):([0-9]{1,5})(?:/.*)?")


@dataclass(frozen=True, slots=True)
class RunningStack:
    """Where a running `tallygate up` serves its pages, the secret that signs its links, and its process."""

    dashboard_url: str
    secret: str = field(repr=False)
    pid: int


@dataclass(frozen=True, slots=True)
class LocalPorts:
    """What the environment says about the ports of a stack on this machine.

    Attributes:
        ports: by part (owner, kafka, clickhouse, dashboard), where its address is a port of this machine.
        elsewhere: the variable of each part whose address is another; the address may hold a password.
    """

    ports: Mapping[str, int]
    elsewhere: Mapping[str, str]


def current_environ() -> dict[str, str]:
    """The environment as it is now."""
    return dict(os.environ)


def read_all(*readers: Callable[[], object]) -> None:
    """Have the settings of all parts of a process read, before it takes any of them.

    Raises:
        ConfigError: names all that are wrong, of whichever part.
    """
    faults = []
    for read in readers:
        try:
            read()
        except ConfigError as fault:
            faults.append(str(fault))
    if faults:
        raise ConfigError("; ".join(faults))


def secret_from(environ: Mapping[str, str]) -> str:
    """The dashboard's signing secret: TALLYGATE_SECRET, or a new one that ends with this process."""
    return environ.get("TALLYGATE_SECRET") or secrets.token_urlsafe(32)


def local_ports(environ: Mapping[str, str]) -> LocalPorts:
    """The ports of 127.0.0.1 that the ``TALLYGATE_…`` addresses name; what is not set is in neither part."""
    ports: dict[str, int] = {}
    elsewhere: dict[str, str] = {}
    for part, variable in _ADDRESSES.items():
        address = environ.get(variable, "").strip()
        found = _LOCAL.fullmatch(address)
        if found is not None and 1 <= int(found[1]) <= 65_535:
            ports[part] = int(found[1])
        elif address:
            elsewhere[part] = variable
    return LocalPorts(ports, elsewhere)


def announce(stack: RunningStack) -> None:
    """Let `tallygate link` on this machine find the running stack; readable by its user only."""
    path = _announcement(stack.pid)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(json.dumps(asdict(stack)))


def withdraw(stack: RunningStack) -> None:
    """Take the stack's announcement back; those of others stay."""
    _announcement(stack.pid).unlink(missing_ok=True)


def announced() -> list[RunningStack]:
    """The stacks that run on this machine, the one that began last first; not those that were killed."""
    found = [stack for path in _announcement(0).parent.glob("*.json") if (stack := _read(path)) is not None]
    return [stack for _, stack in sorted(found, key=lambda one: one[0], reverse=True)]


def _read(path: Path) -> tuple[int, RunningStack] | None:
    """When a stack was announced, and which; None if it does not run any more."""
    try:
        found = json.loads(path.read_text())
        stack = RunningStack(str(found["dashboard_url"]), str(found["secret"]), int(found["pid"]))
        return (path.stat().st_mtime_ns, stack) if _runs(stack.pid) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it is another user's
        return True
    return True


def _announcement(pid: int) -> Path:
    return cache_root() / "up" / f"{pid}.json"
