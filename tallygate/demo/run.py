"""``tallygate demo``: the whole system on this machine, a fleet, real traffic, and a count that must agree."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from aggregator.store_clickhouse import ClickHouseStore
from dashboard.links import sign_in_link
from tallygate.demo.callers import CALLERS
from tallygate.demo.count import CallerCount, count, table, write_report
from tallygate.demo.fleet import Fleet
from tallygate.demo.load import Load
from tallygate.up import LocalStack, StackOptions

_CHECK_S = 0.25
#: How long the record may take to hold everything once the traffic has ended.
_SETTLE_S = 45.0
#: How long the live totals may take to hear of every gateway before the traffic starts.
_ON_RECORD_S = 20.0
_COPIES_HEARD = "SELECT uniqExact(copy_id) FROM live FINAL WHERE kind = 'copy'"
#: How often a line of progress is written where there is no terminal to rewrite it on.
_LINE_EVERY_S = 5.0


def run(
    *, seconds: float, rate_per_s: float, copies: int, report: Path | None, options: StackOptions | None = None
) -> int:
    """Run the demonstration. Returns 0 if every count agrees, 1 if one does not; Ctrl-C ends the traffic early.

    Raises:
        EngineError: a part did not start, or ended.
    """
    if report is not None and not report.parent.is_dir():
        sys.stderr.write(f"tallygate: --report is {str(report)!r}; allowed: a file in a folder that exists\n")
        return 2
    with LocalStack(options) as stack:
        fleet = Fleet(copies, settings=stack.environ, log_dir=stack.log_dir)
        try:
            fleet.wait_ready()
            asyncio.run(_wait_on_record(stack, fleet, copies))
            sys.stdout.write(_welcome(stack, copies, rate_per_s, seconds))
            load = Load(fleet.addresses, rate_per_s=rate_per_s)
            started_s = time.monotonic()
            asyncio.run(_drive(load, seconds, _both(stack, fleet)))
            took_s = time.monotonic() - started_s
            sys.stdout.write("\nthe traffic has ended; the gateways settle and ship what they hold …\n")
        finally:
            fleet.stop()
        counts = asyncio.run(_settled_counts(stack, load))
    return _verdict(counts, took_s, report)


def _both(stack: LocalStack, fleet: Fleet) -> Callable[[], None]:
    def check() -> None:
        stack.check()
        fleet.check()

    return check


async def _wait_on_record(stack: LocalStack, fleet: Fleet, copies: int) -> None:
    """Return once the live totals have heard of every gateway, so that the pages are right from the first request.

    A worker needs some seconds to join its group. Goes on after a while in any case: the count does not need it.
    """
    store = await asyncio.to_thread(ClickHouseStore.connect, stack.environ["TALLYGATE_CLICKHOUSE"])
    try:
        until_s = time.monotonic() + _ON_RECORD_S
        while time.monotonic() < until_s:
            stack.check()
            fleet.check()
            if int((await asyncio.to_thread(store.rows, _COPIES_HEARD))[0][0]) >= copies:
                return
            await asyncio.sleep(_CHECK_S)
    finally:
        store.close()


async def _drive(load: Load, seconds: float, check: Callable[[], None]) -> None:
    """Send the traffic, watch over the processes, and say how it goes."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, load.stop)
    started_s = time.monotonic()
    progress = _Progress(seconds)
    sending = asyncio.create_task(load.run(seconds))
    try:
        while not sending.done():
            await asyncio.wait([sending], timeout=_CHECK_S)
            check()
            progress.say(time.monotonic() - started_s, load)
        await sending
    finally:
        sending.cancel()
        loop.remove_signal_handler(signal.SIGINT)


class _Progress:
    """One line that is rewritten on a terminal, and a line now and then elsewhere."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._rewrites = sys.stdout.isatty()
        self._next_s = 0.0

    def say(self, elapsed_s: float, load: Load) -> None:
        if not self._rewrites and elapsed_s < self._next_s:
            return
        self._next_s = elapsed_s + _LINE_EVERY_S
        statuses = {status: sum(seen.statuses[status] for seen in load.seen.values()) for status in (200, 429)}
        line = (
            f"{min(elapsed_s, self._seconds):5.1f} of {self._seconds:g} s   "
            f"{load.answered:>9,} answered   {statuses[200]:>9,} × 200   {statuses[429]:>9,} × 429"
        )
        sys.stdout.write(f"\r{line}" if self._rewrites else f"{line}\n")
        sys.stdout.flush()


async def _settled_counts(stack: LocalStack, load: Load) -> list[CallerCount]:
    """The counts, as soon as the record holds as many decisions as were answered; or as they are after a while."""
    store = await asyncio.to_thread(ClickHouseStore.connect, stack.environ["TALLYGATE_CLICKHOUSE"])
    try:
        until_s = time.monotonic() + _SETTLE_S
        while True:
            counts = await asyncio.to_thread(count, load.seen, store)
            recorded = sum(row.recorded_admitted + row.recorded_refused for row in counts)
            live = sum(row.live_admitted + row.live_refused for row in counts)
            if min(recorded, live) >= load.answered or time.monotonic() > until_s:
                return counts
            stack.check()
            await asyncio.sleep(_CHECK_S)
    finally:
        store.close()


def _verdict(counts: list[CallerCount], took_s: float, report: Path | None) -> int:
    sys.stdout.write(f"\nwhat the HTTP client saw, beside what ClickHouse holds\n\n{table(counts)}\n\n")
    if report is not None:
        write_report(report, counts, seconds=took_s)
        sys.stdout.write(f"written to {report}\n")
    faults = [row.fault for row in counts if row.fault is not None]
    total, alone = sum(row.sent for row in counts), sum(row.decided_alone for row in counts)
    if alone:
        sys.stdout.write(
            f"{alone:,} of them were decided by a gateway alone, because the owner did not answer in time: "
            "that happens on a busy machine\n"
        )
    if not faults:
        sys.stdout.write(f"equal: {total:,} requests, {total:,} decisions, to the last one\n")
        return 0
    sys.stdout.write("\n".join(("NOT EQUAL:", *(f"  {fault}" for fault in faults), "")))
    return 1


def _welcome(stack: LocalStack, copies: int, rate_per_s: float, seconds: float) -> str:
    def link(caller: str) -> str:
        return sign_in_link(stack.dashboard_url, stack.secret, "customer", caller=caller)

    customers = [f"  {caller.name:<8} {caller.story}\n           {link(caller.name)}" for caller in CALLERS]
    return "\n".join(
        (
            "",
            f"{copies} gateways, {rate_per_s:,g} requests/s, {seconds:g} s. Open while it runs:",
            "",
            f"  support  {sign_in_link(stack.dashboard_url, stack.secret, 'support')}",
            *customers,
            "",
            "",
        )
    )
