"""``tallygate demo``: the whole system on this machine, a fleet, real traffic, and a count that must agree."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path

from aggregator.store_clickhouse import ClickHouseStore
from dashboard.formats import plural
from dashboard.links import sign_in_link
from tallygate.demo.callers import CALLERS
from tallygate.demo.count import CallerCount, count, table, write_report
from tallygate.demo.fleet import Fleet
from tallygate.demo.load import Load
from tallygate.demo.missing import Missing, missing_of
from tallygate.ending import Ended, ignore_end, raise_at_end, run_async
from tallygate.engines.process import describe_exit
from tallygate.up import LocalStack, StackOptions

_CHECK_S = 0.25
#: Gateways that are left when something went wrong are not waited for.
_STOP_LEFT_S = 1.0
#: With a gateway lost, the record is taken as it is once nothing was added to it for so long.
_STILL_S = 8.0
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
    """Run the demonstration. Returns 0 if every count agrees, 1 if one does not or a gateway was lost.

    Ctrl-C during the traffic ends it early, and the count is made; at any other time, like SIGTERM and SIGHUP, it ends
    everything: 128 and the signal's number is returned then.

    Raises:
        EngineError: a part did not start, or ended.
    """
    if report is not None and not report.parent.is_dir():
        sys.stderr.write(f"tallygate: --report is {str(report)!r}; allowed: a file in a folder that exists\n")
        return 2
    raise_at_end()
    stack, fleet = LocalStack(options), Fleet()
    try:
        stack.start()
        return _demonstrate(stack, fleet, seconds=seconds, rate_per_s=rate_per_s, copies=copies, report=report)
    except Ended as end:
        sys.stderr.write(f"\ntallygate: {end.name}: the demonstration ends before its count; nothing of it is kept\n")
        return end.exit_code
    finally:
        ignore_end()
        fleet.stop(_STOP_LEFT_S)
        stack.stop()


def _demonstrate(
    stack: LocalStack, fleet: Fleet, *, seconds: float, rate_per_s: float, copies: int, report: Path | None
) -> int:
    fleet.start(copies, settings=stack.environ, log_dir=stack.log_dir)
    fleet.wait_ready()
    run_async(_wait_on_record(stack, fleet, copies))
    sys.stdout.write(_welcome(stack, copies, rate_per_s, seconds))
    load = Load(fleet.addresses, rate_per_s=rate_per_s)
    started_s = time.monotonic()
    run_async(_drive(load, seconds, lambda: _check(stack, fleet, load)), on_interrupt=load.stop)
    took_s = time.monotonic() - started_s
    sys.stdout.write("\nthe traffic has ended; the gateways settle and ship what they hold …\n")
    sys.stdout.flush()
    _check(stack, fleet, load)
    fleet.stop()
    counts, missing = run_async(_settled_counts(stack, fleet, load))
    return _verdict(counts, missing, took_s, report)


def _check(stack: LocalStack, fleet: Fleet, load: Load) -> None:
    stack.check()
    for gateway in fleet.newly_lost():
        load.without(gateway.address)
        sys.stdout.write(
            f"\n{gateway.copy_id} ended with {describe_exit(gateway.code)}; its requests go to the others. The count "
            "will show what went with it\n"
        )
        sys.stdout.flush()


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


async def _settled_counts(stack: LocalStack, fleet: Fleet, load: Load) -> tuple[list[CallerCount], list[Missing]]:
    """The counts, as soon as the record holds as many decisions as were answered; or as they are after a while.

    What went with a gateway never arrives: then they are taken as soon as nothing more does.
    """
    store = await asyncio.to_thread(ClickHouseStore.connect, stack.environ["TALLYGATE_CLICKHOUSE"])
    try:
        now_s = time.monotonic()
        until_s, moved_s, before = now_s + _SETTLE_S, now_s, (-1, -1)
        while True:
            counts = await asyncio.to_thread(count, load.seen, store)
            recorded = sum(row.recorded_admitted + row.recorded_refused for row in counts)
            live = sum(row.live_admitted + row.live_refused for row in counts)
            now_s = time.monotonic()
            if (recorded, live) != before:
                moved_s, before = now_s, (recorded, live)
            still = bool(fleet.lost) and now_s - moved_s > _STILL_S
            if min(recorded, live) >= load.answered or still or now_s > until_s:
                return counts, await asyncio.to_thread(missing_of, fleet.lost, load.answered_by, store)
            stack.check()
            await asyncio.sleep(_CHECK_S)
    finally:
        store.close()


def _verdict(counts: list[CallerCount], missing: list[Missing], took_s: float, report: Path | None) -> int:
    sys.stdout.write(f"\nwhat the HTTP client saw, beside what ClickHouse holds\n\n{table(counts)}\n\n")
    if report is not None:
        write_report(report, counts, missing, seconds=took_s)
        sys.stdout.write(f"written to {report}\n")
    faults = [row.fault for row in counts if row.fault is not None]
    total, alone = sum(row.sent for row in counts), sum(row.decided_alone for row in counts)
    if alone:
        sys.stdout.write(
            f"{alone:,} of them were decided by a gateway alone, because the owner did not answer in time: "
            "that happens on a busy machine\n"
        )
    if not faults and not missing:
        sys.stdout.write(f"equal: {total:,} requests, {total:,} decisions, to the last one\n")
        return 0
    if faults:
        sys.stdout.write("\n".join(("NOT EQUAL:", *(f"  {fault}" for fault in faults), "")))
    if missing:
        heading = f"{plural(len(missing), 'gateway was', 'gateways were')} lost, and what it held went with it:"
        sys.stdout.write("\n".join((heading, *(f"  {gateway.sentence}" for gateway in missing), "")))
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
