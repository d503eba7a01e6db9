"""The ClickHouse of one machine: the embedded engine behind its HTTP interface, started as a process of its own."""

from __future__ import annotations

import importlib.util
import signal
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tallygate.engines.config import child_environ
from tallygate.engines.errors import EngineMissing
from tallygate.engines.front.users import User, write_users
from tallygate.engines.ports import claim_port
from tallygate.engines.process import Child, Command, spawn

HOST = "127.0.0.1"
DATABASE = "tallygate"
_NEEDED = ("chdb", "starlette", "uvicorn", "cramjam", "python_multipart")


@dataclass(frozen=True, slots=True)
class ClickHouse:
    """A running front."""

    child: Child
    port: int

    @property
    def address(self) -> str:
        """``host:port`` of the HTTP interface."""
        return f"{HOST}:{self.port}"

    @property
    def dsn(self) -> str:
        """As ``TALLYGATE_CLICKHOUSE`` takes it; the database need not exist yet."""
        return self.dsn_for(DATABASE)

    def dsn_for(self, database: str) -> str:
        """The DSN of one database."""
        return f"http://{self.address}/{database}"

    @property
    def pid(self) -> int:
        """The front's process id; the engine lives in it."""
        return self.child.pid

    def stop(self) -> None:
        """End it, after its running statements; safe to call twice."""
        self.child.stop(timeout_s=8.0)


def start_clickhouse(
    data_dir: Path,
    port: int = 0,
    *,
    users: Sequence[User] = (),
    max_memory_mb: int | None = None,
    max_body_mb: int | None = None,
    setting: str = "TALLYGATE_CLICKHOUSE",
    environ: Mapping[str, str] | None = None,
    timeout_s: float = 60.0,
) -> ClickHouse:
    """Start the engine on a folder; port 0 takes a free one. A folder that was used before is opened again.

    Raises:
        PortTaken: the port is in use.
        EngineMissing: a package is not installed.
        EngineFailed: it ended or did not answer in time, such as a folder that another process holds.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise EngineMissing(f"the embedded ClickHouse needs {', '.join(missing)}: pip install 'tallygate[local]'")
    chosen = claim_port(port, purpose="ClickHouse", setting=setting, host=HOST)
    data_dir.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-m", "tallygate.engines.clickhouse_front"]
    argv += ["--data-dir", str(data_dir), "--host", HOST, "--port", str(chosen)]
    if max_memory_mb is not None:
        argv += ["--max-memory-mb", str(max_memory_mb)]
    if max_body_mb is not None:
        argv += ["--max-body-mb", str(max_body_mb)]
    if users:
        write_users(data_dir / "users.json", users)
        argv += ["--users", str(data_dir / "users.json")]
    # Temporary files beside the data, where the next start removes them; times without a zone are UTC.
    settings = {"TMPDIR": str(data_dir / "tmp"), "TZ": "UTC", **(environ or {})}
    # SIGTERM when we die: the engine can then close its files.
    command = Command("ClickHouse", argv, data_dir / "front.log", child_environ(settings), death_signal=signal.SIGTERM)
    child = spawn(command)
    child.wait_ready(lambda: _pings(chosen), timeout_s=timeout_s)
    return ClickHouse(child, chosen)


def _pings(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/ping", timeout=1) as response:
            return bool(response.status == 200)
    except OSError:
        return False
