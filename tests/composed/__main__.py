"""``python -m tests.composed PROJECT COMPOSE-WORD...``: rounds of traffic on a composed stack that is up.

After each round the pages, the live totals and the raw record must hold what the HTTP client saw, to the last request.
Settings are those of the compose file: TALLYGATE_SECRET and CLICKHOUSE_PASSWORD.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from aggregator.store import StoreUnavailable
from aggregator.store_clickhouse import ClickHouseStore
from tallygate.demo.count import CallerCount, count, table
from tallygate.demo.load import Seen
from tests.composed.pages import Shown, read_pages
from tests.composed.stack import Stack
from tests.composed.traffic import RATES, SIDECAR, gateways, send

_DASHBOARD = "http://127.0.0.1:8321"
_COPIES = 2
_ROUND_S = 12.0
_FAULT_AFTER_S = 4.0
_EQUAL_S = 180.0
_ACCOUNTING = ("recorder", "worker", "signals", "settler")
_ENGINES = ("valkey", "kafka", "clickhouse")
#: What a process ends with that was asked to; a Java ends by the signal itself.
_ORDERLY = {0, 143}


class Check:
    """The traffic so far, and whether everything that counts it agrees."""

    def __init__(self, stack: Stack, secret: str, password: str) -> None:
        self._stack = stack
        self._secret = secret
        self._dsn = f"http://tallygate:{password}@127.0.0.1:18123/tallygate"
        self._seen = {caller: Seen() for caller in RATES}

    def rounds(self, addresses: list[str]) -> None:
        """Traffic on a healthy stack, through a crash, and through a stop that the engine does not undo."""
        stack = self._stack

        def killed_and_started() -> None:
            stack.run("kill", "-s", "KILL", *_ACCOUNTING)
            if any(container.running for container in stack.containers(*_ACCOUNTING)):
                raise RuntimeError("a container that was killed by a command runs")
            stack.run("up", "-d", "--no-build")

        self._round("a healthy stack", addresses, lambda: None)
        self._round(
            "recorder, both workers, second stage and settler crash", addresses, lambda: stack.crash(*_ACCOUNTING)
        )
        self._round("the dashboard and the log crash", addresses, lambda: stack.crash("dashboard", "kafka"))
        self._round("`kill -s KILL` and `up` again", addresses, killed_and_started)

    def restart(self) -> None:
        """Stop all in order and start again: everything ends within its grace, and the volumes keep the record."""
        started_s = time.monotonic()
        self._stack.run("stop")
        ended = self._stack.containers("sidecar", "dashboard", "topics", "migrate", *_ACCOUNTING, *_ENGINES)
        wrong = [f"{one.name} ended with {one.exit_code}" for one in ended if one.exit_code not in _ORDERLY]
        if wrong:
            raise RuntimeError("; ".join(wrong))
        _say(f"`stop` ended {len(ended)} containers in order, in {time.monotonic() - started_s:.1f} s")
        self._stack.run("up", "-d", "--no-build")
        self._must_agree("after `stop` and `up`")

    def _round(self, name: str, addresses: list[str], fault: Callable[[], None]) -> None:
        asyncio.run(self._send_through(addresses, fault))
        self._must_agree(name)

    async def _send_through(self, addresses: list[str], fault: Callable[[], None]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(send(addresses, _ROUND_S, self._seen))
            await asyncio.sleep(_FAULT_AFTER_S)
            await asyncio.to_thread(fault)

    def _must_agree(self, name: str) -> None:
        until_s = time.monotonic() + _EQUAL_S
        while True:
            faults, counts = self._faults()
            if not faults:
                total = sum(row.sent for row in counts)
                _say(f"{name}: {total:,} requests, equal on pages, in live totals and in the record")
                return
            if time.monotonic() > until_s:
                raise RuntimeError("\n".join((f"{name}: NOT EQUAL after {_EQUAL_S:g} s", *faults, table(counts))))
            time.sleep(0.5)

    def _faults(self) -> tuple[list[str], list[CallerCount]]:
        try:
            store = ClickHouseStore.connect(self._dsn)
            try:
                counts = count(self._seen, store)
            finally:
                store.close()
            shown = {caller: read_pages(_DASHBOARD, self._secret, caller) for caller in self._seen}
        except (httpx.HTTPError, StoreUnavailable) as error:
            return [f"cannot be read: {error}"], []
        faults = [row.fault for row in counts if row.fault is not None]
        return faults + [fault for row in counts if (fault := _page_fault(row, shown.get(row.caller)))], counts


def _page_fault(row: CallerCount, shown: Shown | None) -> str | None:
    if shown is not None and shown.agrees(row.http_200, row.http_429):
        return None
    return f"{row.caller}: the client saw {row.http_200} × 200 and {row.http_429} × 429, the pages say {shown}"


def _say(text: str) -> None:
    sys.stdout.write(f"compose-check: {text}\n")
    sys.stdout.flush()


def main() -> int:
    """Run all rounds; 0 if everything agreed, 1 with what did not."""
    project, *compose = sys.argv[1:]
    check = Check(Stack(tuple(compose), project), os.environ["TALLYGATE_SECRET"], os.environ["CLICKHOUSE_PASSWORD"])
    try:
        with tempfile.TemporaryDirectory() as folder, gateways(_COPIES, Path(folder)) as addresses:
            check.rounds([*addresses, SIDECAR])
        check.restart()
    except (RuntimeError, TimeoutError, ExceptionGroup) as error:
        sys.stderr.write(
            f"compose-check: {error!r}\n" if isinstance(error, ExceptionGroup) else f"compose-check: {error}\n"
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
