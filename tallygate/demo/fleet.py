"""The demonstration's gateways: one real server process a copy, all children of this process."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from tallygate.config import current_environ
from tallygate.demo.missing import LostGateway
from tallygate.ending import held
from tallygate.engines.errors import EngineFailed
from tallygate.engines.ports import claim_port
from tallygate.engines.process import Child, Command, accepts_connections, describe_exit, spawn, stop_all

HOST = "127.0.0.1"
POLICY = Path(__file__).with_name("policy.yaml")
_READY_S = 30.0
#: A gateway that ends ships what it holds first; that may take a broker's while.
_STOP_S = 20.0


class Fleet:
    """Gateways on free ports, each a copy of its own."""

    def __init__(self) -> None:
        self._children: list[Child] = []
        self._ports: list[int] = []
        self._lost: dict[int, LostGateway] = {}

    def start(self, copies: int, *, settings: Mapping[str, str], log_dir: Path) -> None:
        """Start so many; `stop` ends those that have started, whatever happens meanwhile."""
        for number in range(1, copies + 1):
            port = claim_port(0, purpose="a gateway of the demonstration", setting="--copies", host=HOST)
            own = {"TALLYGATE_COPY_ID": _copy_id(number), "TALLYGATE_POLICY": str(POLICY)}
            command = Command(
                f"gateway {number}",
                [sys.executable, "-m", "tallygate.demo.gateway", "--port", str(port)],
                log_dir / f"gateway-{number}.log",
                {**current_environ(), **settings, **own},
            )
            with held():
                self._children.append(spawn(command))
                self._ports.append(port)

    @property
    def addresses(self) -> list[str]:
        """Base URLs, one a copy."""
        return [f"http://{HOST}:{port}" for port in self._ports]

    def wait_ready(self) -> None:
        """Return once all of them serve. Raises `EngineFailed` if one does not."""
        for child, port in zip(self._children, self._ports, strict=True):
            child.wait_ready(partial(accepts_connections, HOST, port), timeout_s=_READY_S)

    def check(self) -> None:
        """Raise `EngineFailed` if a gateway has ended: before the traffic that is a fault of the set-up."""
        for child in self._children:
            code = child.exit_code()
            if code is not None:
                raise EngineFailed(f"{child.name} ended with {describe_exit(code)}. Its log:\n{child.log_tail()}")

    def newly_lost(self) -> list[LostGateway]:
        """Gateways that have ended by themselves since the last call."""
        found = []
        for place, (child, address) in enumerate(zip(self._children, self.addresses, strict=True)):
            code = child.exit_code()
            if code is not None and place not in self._lost:
                self._lost[place] = LostGateway(_copy_id(place + 1), address, code)
                found.append(self._lost[place])
        return found

    @property
    def lost(self) -> list[LostGateway]:
        """All that have ended by themselves."""
        return list(self._lost.values())

    def stop(self, timeout_s: float = _STOP_S) -> None:
        """End all of them in good order: grants settled, decisions shipped. Safe to call twice."""
        stop_all(self._children, timeout_s=timeout_s)
        self._children = []
        self._ports = []


def _copy_id(number: int) -> str:
    return f"gw-{number:03d}"
