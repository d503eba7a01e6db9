"""``tallygate retention show|apply|drop``: how long the record is kept, by table, and dropping a month by hand.

Deletes nothing without ``--yes``. The settings are TALLYGATE_KEEP_…; the recorder applies them at its start as well.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from contextlib import closing

from aggregator.config import AggregatorConfig
from aggregator.retention.apply import apply, shown, ttls
from aggregator.retention.drop import MonthNotOver, Partition, drop, partitions
from aggregator.retention.kept import kept
from aggregator.retention.unsettled import unsettled
from aggregator.sql import load_queries
from aggregator.store import Store, StoreRefused, StoreUnavailable
from aggregator.store_clickhouse import ClickHouseStore

_SIZES = load_queries("aggregator.sql", "retention.sql")["sizes"].sql
_MONTH = re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])\Z")
#: Whose months the database has dates for.
_YEARS = range(1970, 2149)
_NOT_ASKED = 3


def main(words: Sequence[str]) -> int:
    """Run one action on the database of TALLYGATE_CLICKHOUSE: 0 done, 1 refused, 2 wrong call, 3 not answered.

    Raises:
        ConfigError: a setting is wrong.
    """
    options = _parser().parse_args(words)
    config = AggregatorConfig.from_env()
    try:
        with closing(ClickHouseStore.open(config.clickhouse)) as store:
            if options.action == "drop":
                return _drop(store, *options.month, yes=options.yes)
            if options.action == "apply":
                return _apply(store, config, unsettled_too=options.unsettled)
            return _show(store, config)
    except MonthNotOver as fault:
        sys.stderr.write(f"tallygate retention: {fault}; allowed: a month that is over\n")
        return 1
    except (StoreUnavailable, StoreRefused) as fault:
        sys.stderr.write(f"tallygate retention: {fault}\n")
        return _NOT_ASKED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tallygate retention", description="How long the record is kept.")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("show", help="what is kept for how long, since when raw is whole, and what it takes on disk")
    applying = actions.add_parser("apply", help="bring the tables to the settings TALLYGATE_KEEP_…")
    applying.add_argument(
        "--unsettled", action="store_true", help="also where raw decisions go that no settler has made totals of"
    )
    dropping = actions.add_parser("drop", help="drop one month of the raw record, now")
    dropping.add_argument("--month", type=_month, required=True, metavar="YYYY-MM", help="a month that is over")
    dropping.add_argument("--yes", action="store_true", help="do it; without it, only say what would go")
    return parser


def _month(text: str) -> tuple[int, int]:
    match = _MONTH.match(text)
    if match is None or int(match[1]) not in _YEARS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a month; allowed: YYYY-MM, as in 2026-01, of {_YEARS[0]} to {_YEARS[-1]}"
        )
    return int(match[1]), int(match[2])


def _show(store: Store, config: AggregatorConfig) -> int:
    found = ttls(store, config.keep)
    sys.stdout.write(shown(found))
    if any(one.differs for one in found):
        sys.stdout.write("run `tallygate retention apply`, or start a recorder, to bring them to the settings\n")
    put_off = unsettled(store, config.recounted_days) if any(one.takes_raw for one in found) else None
    if put_off is not None:
        sys.stdout.write(f"{put_off}\n")
    for sentence in kept(store).gone(0, 1 << 62):
        sys.stdout.write(f"{sentence}\n")
    for table, rows, size in store.rows(_SIZES):
        sys.stdout.write(f"{table}: {rows:,} rows, {size / 1e6:,.1f} MB\n")
    return 0


def _apply(store: Store, config: AggregatorConfig, *, unsettled_too: bool) -> int:
    applied = apply(store, config.keep, recounted_days=config.recounted_days, unsettled_too=unsettled_too)
    sys.stdout.write("".join(f"{one.table}: {one.to_be}\n" for one in applied.changed))
    if applied.put_off is not None:
        left = ", ".join(one.table for one in applied.left)
        sys.stderr.write(f"tallygate retention: {applied.put_off}; left as they are: {left}\n")
        return 1
    sys.stdout.write("" if applied.changed else "nothing to do\n")
    return 0


def _drop(store: Store, year: int, month: int, *, yes: bool) -> int:
    found = drop(store, year, month) if yes else partitions(store, year, month)
    for line in _by_table(found):
        sys.stdout.write(f"{line}\n")
    if not found:
        sys.stdout.write(f"nothing of {year}-{month:02d} is in the raw tables\n")
    elif not yes:
        sys.stdout.write(f"nothing was dropped; with --yes all of {year}-{month:02d} goes, and cannot be had back\n")
    return 0


def _by_table(found: Sequence[Partition]) -> list[str]:
    return [
        f"{table}: {sum(one.rows for one in own):,} rows, {sum(one.size_bytes for one in own) / 1e6:,.1f} MB"
        for table in dict.fromkeys(one.table for one in found)
        for own in [[one for one in found if one.table == table]]
    ]
