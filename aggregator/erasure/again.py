"""Finds what was written of an erased caller's past after it had been deleted, and deletes it.

A recorder, a settler or a replay may have read before the erasure was begun, and may stand still before it writes: no
database can be asked to refuse that. Whoever notices leaves the name in `erasing`, and the settler takes it out. Never
deletes what the caller did since.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pyarrow as pa

from aggregator.core.record.erased import Erased, Erasure
from aggregator.erasure.known import Stated
from aggregator.erasure.past import past
from aggregator.erasure.places import TOTALS, left, places
from aggregator.erasure.removing import Progress, take_out
from aggregator.sql import load_queries
from aggregator.store import Store

_NOTED = load_queries("aggregator.sql", "erasure.sql")["noted"].sql


def note(store: Store, found: Collection[tuple[Erasure, str]]) -> None:
    """Leave word that something of these callers' past may be on record again.

    Raises:
        StoreUnavailable, StoreRefused: the database did not take it; say it again.
    """
    # One partition each, and there are few.
    for erasure, caller in found:
        row = {"erasure_id": pa.array([_under(erasure)], pa.uint64()), "caller": pa.array([caller])}
        store.insert("erasing", pa.table(row))


def forget(store: Store, erasure: Erasure) -> None:
    """Take that word back: nothing of the past is on record, or it is being erased anew.

    Raises:
        StoreUnavailable, StoreRefused: the database did not take it; say it again.
    """
    store.command(f"ALTER TABLE erasing DROP PARTITION ID '{_under(erasure)}'")


def noted(store: Store, known: Iterable[Stated]) -> list[tuple[Erasure, str]]:
    """Of whom word was left, or whose removal was ended half way."""
    by_number = {_under(one.erasure): one.erasure for one in known}
    if not by_number:
        return []
    rows = [(int(number), str(caller)) for number, caller in store.rows(_NOTED)]
    return [(by_number[number], caller) for number, caller in rows if number in by_number]


def in_totals(store: Store, erasures: Collection[Erasure]) -> list[tuple[Erasure, str]]:
    """The callers of these erasures of whom there are totals of times that began before they were erased.

    What of these may not be there, `left` says.

    Reads the names in all totals: by their hashes nobody can ask for them.
    """
    if not erasures:
        return []
    latest = past(store, max(one.erased_before_us for one in erasures))
    # Tables, columns and numbers are ours.
    every = " UNION ALL ".join(
        f"SELECT DISTINCT {name} AS who FROM {place.table} WHERE {latest.began(TOTALS[place.table][0])}"  # noqa: S608
        for place in places(store)
        if place.table in TOTALS
        for name in place.names
    )
    known = Erased(erasures)
    names = (str(name) for (name,) in store.rows(f"SELECT DISTINCT who FROM ({every})"))  # noqa: S608  (see above)
    return [(erasure, name) for name in names if (erasure := known.of(name)) is not None]


def remove(store: Store, caller: str, erasure: Erasure, progress: Progress) -> tuple[dict[str, int], bool]:
    """Delete what of the past is on record again; how many rows were found in which table, and whether all are gone.

    Raises:
        StoreUnavailable: the database did not answer; run it again.
        StoreRefused: it cannot delete; says why.
    """
    found = left(store, caller, past(store, erasure.erased_before_us))
    if found:
        is_gone = take_out(store, caller, erasure, under=_under(erasure), listed=lambda _: None, progress=progress)
    else:
        forget(store, erasure)
        is_gone = True
    # Word that came between the last look and now went with the old one; whoever left it had written before.
    if is_gone and not left(store, caller, past(store, erasure.erased_before_us)):
        return found, True
    note(store, [(erasure, caller)])
    return found, False


def _under(erasure: Erasure) -> int:
    """Under which number the name stands: not that of the erasure, which may be at work itself."""
    return erasure.erasure_id ^ 1
