"""``python -m benchmarks.queries [--decisions N] [--rolled N] [--times N] [--inserts-per-s N] [--kept DIR]``.

Fills an embedded database with a month of a large fleet, and asks what pages, alarms and disputes ask: alone, and while
decisions are being stored. Among the results are the load of the machine, and what an answer takes of the engine's CPU.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from aggregator.migrate import migrate
from aggregator.store_clickhouse import ClickHouseStore
from benchmarks.pipeline.measures import cpu_s
from benchmarks.queries.asking import Questions, inserting, measured
from benchmarks.queries.filling import DAY_S, Sizes, fill
from benchmarks.report import Result, report
from tallygate.engines.clickhouse import start_clickhouse


def measure(options: argparse.Namespace, folder: Path) -> list[Result]:
    """Fill, ask, and ask again beside a writer."""
    sizes = Sizes(options.decisions, options.rolled, options.days)
    note = folder / f"filled-{sizes.decisions}-{sizes.rolled}-{sizes.days}"
    until_s = int(note.read_text()) if note.exists() else int(time.time()) // DAY_S * DAY_S
    engine = start_clickhouse(folder)
    try:
        dsn = engine.dsn_for("queries")
        migrate(dsn)
        with closing(ClickHouseStore.connect(dsn, answer_timeout_s=600)) as store:
            started = time.perf_counter()
            if not note.exists():
                fill(store, sizes, until_s - sizes.days * DAY_S)
                note.write_text(str(until_s))
            filled = Result("fill_s", time.perf_counter() - started, "s")
            with closing(Questions(dsn, store, sizes, until_s)) as questions:
                load, cpu = os.getloadavg()[0], partial(cpu_s, engine.pid)
                found = [*_sizes(store), filled, Result("load", load, "")]
                found += measured(questions, options.times, cpu=cpu)
                if options.inserts_per_s:
                    with inserting(dsn, options.inserts_per_s, sizes.decisions, until_s) as rate:
                        found += measured(questions, options.times, suffix="_inserting")
                        found.append(Result("inserted_per_s", rate(), "/s"))
                    found.append(Result("load_inserting", os.getloadavg()[0], ""))
        return found
    finally:
        engine.stop()


def _sizes(store: ClickHouseStore) -> list[Result]:
    """Rows and parts as they lie there."""
    rows = store.rows(
        "SELECT sumIf(rows, table = 'decisions'), sumIf(rows, table IN ('live', 'settled_minutes', 'signals')), "
        "count() FROM system.parts WHERE active AND database = currentDatabase()"
    )
    decisions, rolled, parts = (float(number) for number in rows[0])
    return [Result("raw_rows", decisions, ""), Result("rolled_rows", rolled, ""), Result("parts", parts, "")]


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print, and write what was asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.queries", description=(__doc__ or "").partition("\n\n")[2]
    )
    parser.add_argument("--decisions", type=int, default=50_000_000, metavar="N", help="raw ones (%(default)s)")
    parser.add_argument("--rolled", type=int, default=50_000_000, metavar="N", help="rows of totals (%(default)s)")
    parser.add_argument("--days", type=int, default=30, metavar="N", help="that they are spread over (%(default)s)")
    parser.add_argument("--times", type=int, default=20, metavar="N", help="that each is asked (%(default)s)")
    parser.add_argument("--inserts-per-s", type=int, default=100_000, metavar="N", help="beside; 0: none (%(default)s)")
    parser.add_argument("--kept", type=Path, metavar="DIR", help="fill it, or ask what was filled there before")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args(words)
    if options.kept is not None:
        return report(lambda: measure(options, options.kept), options.json)
    with tempfile.TemporaryDirectory(prefix="tallygate-queries-") as folder:
        return report(lambda: measure(options, Path(folder)), options.json)


if __name__ == "__main__":
    sys.exit(main())
