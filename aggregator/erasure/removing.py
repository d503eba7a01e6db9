"""Takes the past of one caller out of every table, and lists block by block which decisions went.

Can be ended anywhere and run again. Never deletes a row of anyone else, never touches a total of the fleet, and keeps
the name in one table only, `erasing`, while it works.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import pyarrow as pa

from aggregator.core.record.erased import ErasedPart, Erasure, erased_batches, mark_of
from aggregator.core.record.letters import dead_letter_batches
from aggregator.erasure.letters import Part, each_letter
from aggregator.erasure.past import Past, past
from aggregator.erasure.places import (
    CHARGES,
    SUMMED,
    TOTALS,
    Place,
    charged,
    counted,
    left,
    places,
    went_on,
    would_be_there,
)
from aggregator.pieces import pieces
from aggregator.sql import load_queries
from aggregator.store import Store, StoreRefused
from aggregator.words import LATEST_US, Span

_QUERIES = load_queries("aggregator.sql", "erasure.sql")
#: Decisions listed at a time.
_AT_ONCE = 500_000
#: What had been read before anybody heard of the erasure may still be written for a moment: so often it is deleted.
PASSES = 5
_POLL_S = 0.2
_CHARGE_TYPE = "Array(Tuple(subject String, limit String, grant_id UInt64))"
Progress = Callable[[str], None]


def take_out(
    store: Store,
    caller: str,
    erasure: Erasure,
    *,
    under: int,
    listed: Callable[[Mapping[str, int]], None],
    progress: Progress,
    listed_before: bool = False,
) -> bool:
    """Delete it until nothing that may not be there is found any more; whether that was reached.

    Args:
        store: the database.
        caller: whose.
        erasure: what of it.
        under: the number in `erasing` under which the name stands meanwhile.
        listed: told after its decisions were listed, and before anything is deleted, how many rows go of each table.
        progress: told what is done.
        listed_before: an earlier run listed all, and may have begun to delete: what is there now is less.

    Raises:
        StoreUnavailable: the database did not answer; run it again.
        StoreRefused: it cannot delete; says why.
    """
    # Not once more while the engine fails at what it was given: it keeps that, and tries it again by itself.
    _refuse_failed(_under_way(store, "", under))
    store.insert("erasing", pa.table({"erasure_id": pa.array([under], pa.uint64()), "caller": pa.array([caller])}))
    is_gone = False
    for number in range(PASSES + 1):
        of = past(store, erasure.erased_before_us)
        is_gone = number > 0 and not left(store, caller, of)
        if is_gone or number == PASSES:
            break
        found = counted(store, caller, of)
        if number or not listed_before:
            _list(store, caller, erasure, of, progress)
            listed(found)
        _delete(store, caller, erasure, of, under=under, is_charged=CHARGES in found, progress=progress)
    store.command(f"ALTER TABLE erasing DROP PARTITION ID '{under}'")
    return is_gone


def _list(store: Store, caller: str, erasure: Erasure, of: Past, progress: Progress) -> None:
    """Write down which numbers of which block go; saying it again changes nothing."""
    spans = Span(0, of.before_us), Span(of.before_us, LATEST_US)
    for piece in (piece for span in spans for piece in pieces(store, caller, span, most=_AT_ONCE)):
        is_before = piece.to_us <= of.before_us
        parts = [
            ErasedPart(
                str(copy_id), int(epoch), int(part), int(offset), erasure.erasure_id, np.array(seqs, dtype=np.uint64)
            )
            for copy_id, epoch, part, offset, seqs in store.rows(
                _QUERIES["seqs"].sql, {"caller": caller, **piece.parameters}
            )
            if is_before or of.has_decisions_of(int(part), int(offset))
        ]
        for batch in erased_batches(parts):
            store.insert(batch.table, batch.rows)
        progress(f"listed {sum(len(one.seqs) for one in parts):,} decisions in {len(parts):,} blocks")


def _delete(
    store: Store, caller: str, erasure: Erasure, of: Past, *, under: int, is_charged: bool, progress: Progress
) -> None:
    """Take the rows out of every table, and wait until their bytes are in no part that is read.

    What others are made from first: whoever makes them anew meanwhile then finds nothing. Of a caller that did not go
    on (`went_on`) all goes, whatever its time.
    """
    named = _named(store, under)
    # All of it is ours: letters, digits and underscores; and a number.
    name = f"(SELECT any(caller) FROM {named})"  # noqa: S608  (see above)
    whose = f"IN (SELECT caller FROM {named})"  # noqa: S608  (see above)
    raw, counts, sums = _in_order(places(store))
    for place in raw:
        store.command(f"ALTER TABLE {place.table} DELETE WHERE ({place.of(whose)}){place.in_past(of)}")
    if is_charged:
        mark = f"(if(one.1 = {name}, '{mark_of(erasure.erasure_id)}', one.1), one.2, one.3)"
        marked = f"CAST(arrayMap(one -> {mark}, charges), '{_CHARGE_TYPE}')"
        store.command(f"ALTER TABLE decisions UPDATE charges = {marked} WHERE {charged(name, of)} AND {_stands(named)}")
    letters = ["dead_letters"] if _take_out_of_letters(store, caller, named) else []
    _wait_for(store, [*(place.table for place in raw), *letters], under, progress)
    since = of if went_on(store, caller, of) else None
    # Nobody could count again what it did since in a time that was under way.
    is_final = not would_be_there(store, of)
    for group in (counts, sums):
        for place in group:
            further = place.over(of) if is_final and place.table in TOTALS else place.in_past(since)
            store.command(f"ALTER TABLE {place.table} DELETE WHERE ({place.of(whose)}){further}")
        _wait_for(store, [place.table for place in group], under, progress)


def _named(store: Store, under: int) -> str:
    """The rows of `erasing` with the name: of the database by its name, for a mutation runs in none."""
    return f"{store.rows('SELECT currentDatabase()')[0][0]}.erasing {_marked(under)}"


def _marked(under: int) -> str:
    """What stands in every change that this removal asks for, and in nobody else's; a bracket follows."""
    return f"WHERE erasure_id = {under}"


def _stands(named: str) -> str:
    """That the name is still there when a change is made: without it the change would be about the caller named ''."""
    return f"(SELECT count() FROM {named}) > 0"  # noqa: S608  (see `_delete`)


def _in_order(found: Collection[Place]) -> tuple[list[Place], list[Place], list[Place]]:
    """Facts, then what is counted of them, then what is summed of that."""
    raw = [place for place in found if place.is_raw]
    sums = [place for place in found if place.table in SUMMED]
    return raw, [place for place in found if place not in raw and place not in sums], sums


def _take_out_of_letters(store: Store, caller: str, named: str) -> bool:
    """Write those letters anew that others stand in too, and delete what they were; whether there were any.

    What it deletes says which removal it is of (`_marked`).
    """
    taken = False
    for one in each_letter(store, caller):
        if not one.goes:
            continue
        taken, letter = True, one.letter
        # Before what it was is deleted: ended in between, both are there, and the new one counts.
        for batch in dead_letter_batches([letter]) if one.part is Part.SOME else ():
            store.insert(batch.table, batch.rows)
        # Numbers, and a topic that the recorder reads.
        where = f"log_partition = {letter.log_partition} AND log_offset = {letter.log_offset}"
        store.command(
            f"ALTER TABLE dead_letters DELETE WHERE topic = '{letter.topic}' AND {where} "
            f"AND sipHash64(payload) = {one.hash} AND {_stands(named)}"
        )
    return taken


def _wait_for(store: Store, tables: Collection[str], under: int, progress: Progress) -> None:
    for table in dict.fromkeys(tables):
        _wait(store, table, under, progress)


def _wait(store: Store, table: str, under: int, progress: Progress) -> None:
    """Return once every change of a table that this removal asked for is made, whatever else is being changed there.

    Raises:
        StoreRefused: one cannot be made.
    """
    said = ""
    while True:
        waiting = _under_way(store, table, under)
        _refuse_failed(waiting)
        if not waiting:
            return
        now = f"{table}: {sum(parts for _, parts, _ in waiting)} parts to be written anew"
        if now != said:
            progress(now)
        said = now
        time.sleep(_POLL_S)


def _under_way(store: Store, table: str, under: int) -> list[tuple[str, int, str]]:
    """What this removal asked for and is not made yet: table, parts to do, why the last attempt failed."""
    asked = {"table": table, "words": f"{_marked(under)})"}
    return [
        (str(name), int(parts), str(reason)) for name, parts, reason in store.rows(_QUERIES["mutations"].sql, asked)
    ]


def _refuse_failed(waiting: Sequence[tuple[str, int, str]]) -> None:
    for table, _, reason in waiting:
        if reason:
            raise StoreRefused(f"rows of {table} cannot be deleted: {reason}")
