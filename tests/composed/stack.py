"""The composed stack as Docker sees it: which containers a service has, how they fare, and how to crash them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.processes import wait_until

_COMMAND_S = 300
_BACK_S = 90.0


@dataclass(frozen=True, slots=True)
class Container:
    """One container at one moment. `pid` is that of its first process on this machine, 0 when it does not run."""

    id: str
    name: str
    pid: int
    running: bool
    restarts: int
    exit_code: int


@dataclass(frozen=True, slots=True)
class Stack:
    """A compose project; `compose` is the command with its project and files."""

    compose: tuple[str, ...]
    project: str

    def run(self, *words: str) -> None:
        """Run a compose command.

        Raises:
            RuntimeError: it failed, or took too long; carries what it said.
        """
        _run([*self.compose, *words])

    def containers(self, *services: str) -> list[Container]:
        """The containers of these services, ended ones included."""
        found: list[Container] = []
        for service in services:
            labels = {"project": self.project, "service": service}
            filters = [word for key, value in labels.items() for word in ("--filter", _label(key, value))]
            listed = _run(["docker", "ps", "--all", "--quiet", "--no-trunc", *filters]).split()
            if not listed:
                raise RuntimeError(f"the service {service} has no container")
            found += parse_inspect(_run(["docker", "inspect", *listed]))
        return found

    def crash(self, *services: str) -> None:
        """Kill every process of these services as a fault would, and return once all containers run again.

        Not through the engine: it does not restart what it was told to kill.

        Raises:
            TimeoutError: one did not come back.
        """
        before = {container.id: container for container in self.containers(*services)}
        for container in before.values():
            if not container.running or container.pid <= 1:
                raise RuntimeError(f"{container.name} does not run: nothing to crash")
            os.kill(container.pid, signal.SIGKILL)

        def all_back() -> bool:
            now = self.containers(*services)
            return all(one.running and one.restarts > before[one.id].restarts for one in now)

        wait_until(all_back, _BACK_S, what=f"the restart of {', '.join(services)}", poll_s=0.5)


def parse_inspect(text: str) -> list[Container]:
    """The containers that `docker inspect` describes."""
    described: list[dict[str, Any]] = json.loads(text)
    return [
        Container(
            id=str(one["Id"]),
            name=str(one["Name"]).lstrip("/"),
            pid=int(one["State"]["Pid"]),
            running=bool(one["State"]["Running"]) and not one["State"]["Restarting"],
            restarts=int(one["RestartCount"]),
            exit_code=int(one["State"]["ExitCode"]),
        )
        for one in described
    ]


def _label(key: str, value: str) -> str:
    return f"label=com.docker.compose.{key}={value}"


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_COMMAND_S, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"{' '.join(command)} took more than {_COMMAND_S} s") from error
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout
