"""Gateways of the README's example, and the composed sidecar, on one owner and log; every answer is counted."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import httpx

from tallygate.demo.load import Seen
from tallygate.engines.ports import free_port
from tallygate.engines.process import accepts_connections
from tests.processes import wait_until

_EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "asgi"
_HOST = "127.0.0.1"
_STOP_S = 30
#: Where the file publishes the sidecar, which decides as nginx has it decide.
SIDECAR = "http://127.0.0.1:8320/auth"
_STATUSES = {204: 200, 403: 429}
#: Requests a second of each caller: inside its plan, far over it, inside it on the default plan.
RATES = {"acme": 40, "marlow": 30, "someone-else": 20}


@contextmanager
def gateways(copies: int, folder: Path) -> Iterator[list[str]]:
    """Base URLs of this many gateways, with no setting but the policy: what the file publishes are the defaults."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TALLYGATE_")}
    environ = {**kept, "TALLYGATE_POLICY": str(_EXAMPLE / "policy.yaml")}
    ports = [free_port() for _ in range(copies)]
    running: list[subprocess.Popen[bytes]] = []
    try:
        for port in ports:
            command = [sys.executable, "-m", "uvicorn", "--app-dir", str(_EXAMPLE), "app:app", "--port", str(port)]
            with (folder / f"gateway-{port}.log").open("wb") as log:
                running.append(
                    subprocess.Popen([*command, "--no-access-log"], env=environ, stdout=log, stderr=subprocess.STDOUT)
                )
        for port in ports:
            wait_until(partial(accepts_connections, _HOST, port), 30, what="a gateway")
        yield [f"http://{_HOST}:{port}" for port in ports]
    finally:
        for process in running:
            process.terminate()
        for process in running:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_S)


async def send(addresses: list[str], seconds: float, seen: Mapping[str, Seen]) -> None:
    """Send at `RATES` for this long, to the gateways in turn, and count every answer. Nothing is retried."""
    async with httpx.AsyncClient(timeout=15.0) as client, asyncio.TaskGroup() as group:
        for caller, rate in RATES.items():
            group.create_task(_send_as(client, caller, addresses, round(seconds * rate), seen[caller]))


async def _send_as(client: httpx.AsyncClient, caller: str, addresses: list[str], requests: int, seen: Seen) -> None:
    start = asyncio.get_running_loop().time()
    for number in range(requests):
        await asyncio.sleep(start + number / RATES[caller] - asyncio.get_running_loop().time())
        seen.sent += 1
        try:
            address = addresses[number % len(addresses)]
            answer = await client.get(address, headers={"x-account": caller})
        except httpx.TransportError as error:
            seen.errors[type(error).__name__] += 1
        else:
            status = answer.status_code
            seen.statuses[_STATUSES.get(status, status) if address == SIDECAR else status] += 1
