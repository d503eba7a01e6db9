"""Erases one caller from every table, and writes down what is gone without saying whose it was.

In this order, so that it can be ended anywhere and run again: *begun* (a recorder now refuses to record the caller's
past, and a settler to count it), *listed* (which numbers of which block, and how many rows of which table), deleted,
*done*. Never deletes a row of anyone else, and never touches a total of the fleet.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

import pyarrow as pa

from aggregator.core.record.erased import HASH_BYTES, Erasure, who_hash
from aggregator.erasure.again import forget
from aggregator.erasure.known import Stated, stated
from aggregator.erasure.past import erased_before
from aggregator.erasure.places import counted
from aggregator.erasure.removing import PASSES, Progress, take_out
from aggregator.sql import load_queries
from aggregator.store import Store

_QUERIES = load_queries("aggregator.sql", "erasure.sql")
_NOW = load_queries("aggregator.sql", "retention.sql")["now"].sql
_TIME = pa.timestamp("us", "UTC")


def erase(store: Store, caller: str, *, requested_by: str, reason: str, progress: Progress) -> Stated | None:
    """Erase a caller, or finish an erasure of it that was ended half way; None if nothing of it is on record.

    It is *done* only if nothing is found any more that may not be there (`places.left`), however often it was deleted;
    else it stays *listed*, to be run again.

    Raises:
        StoreUnavailable: the database did not answer; run it again.
        StoreRefused: it cannot delete; says why.
    """
    own = [one for one in stated(store) if one.erasure.is_of(caller)]
    unfinished = [one for one in own if one.state != "done"]
    for one in own:
        # Where no settler runs, the name would stand there for good.
        forget(store, one.erasure)
    if unfinished:
        begun = unfinished[0]
    else:
        if not counted(store, caller):
            return None
        begun = _begin(store, caller, requested_by, reason)
    erasure, removed = begun.erasure, dict(begun.removed)

    def listed(found: Mapping[str, int]) -> None:
        removed.update({table: removed.get(table, 0) + rows for table, rows in found.items()})
        _state(store, begun, "listed", removed)

    is_gone = take_out(
        store, caller, erasure, under=erasure.erasure_id, listed=listed, progress=progress,
        listed_before=begun.state != "begun",
    )  # fmt: skip
    _point_to_settled(store, caller, erasure)
    if is_gone:
        _state(store, begun, "done", removed)
    else:
        progress(f"not finished: rows of the past are still on record after {PASSES} passes; run it again")
    return next(one for one in stated(store) if one.erasure.erasure_id == erasure.erasure_id)


def _begin(store: Store, caller: str, requested_by: str, reason: str) -> Stated:
    salt = secrets.token_bytes(HASH_BYTES)
    now_us = int(store.rows(_NOW)[0][0])
    latest_us = int(store.rows(_QUERIES["latest"].sql, {"caller": caller})[0][0])
    erasure = Erasure(secrets.randbits(63) | 1, erased_before(now_us, latest_us), salt, who_hash(salt, caller))
    begun = Stated(erasure, "begun", requested_by, reason, now_us, {})
    _state(store, begun, "begun", {})
    return begun


def _state(store: Store, one: Stated, state: str, removed: Mapping[str, int]) -> None:
    now_us = int(store.rows(_NOW)[0][0])
    tables = sorted(removed)
    store.insert(
        "erasures",
        _row(
            {
                "erasure_id": (one.erasure.erasure_id, pa.uint64()),
                "state": (state, pa.string()),
                "stated_at": (now_us, _TIME),
                "erased_before": (one.erasure.erased_before_us, _TIME),
                "salt": (one.erasure.salt, pa.binary(HASH_BYTES)),
                "who_hash": (one.erasure.who_hash, pa.binary(HASH_BYTES)),
                "requested_by": (one.requested_by, pa.string()),
                "reason": (one.reason, pa.string()),
                "tables": (tables, pa.list_(pa.string())),
                "removed": ([removed[table] for table in tables], pa.list_(pa.uint64())),
            }
        ),
    )


def _point_to_settled(store: Store, caller: str, erasure: Erasure) -> None:
    """Let pages read the settled totals of the minute in which the caller went on.

    Its live totals were deleted, and the worker writes one again only when it changes: without what came between, or
    with what came before. Says nothing, and so keeps no name, of a caller that did not go on.
    """
    store.command(_QUERIES["went_on"].sql, {"caller": caller, "before_us": erasure.erased_before_us})


def _row(values: Mapping[str, tuple[object, pa.DataType]]) -> pa.Table:
    return pa.table({name: pa.array([value], kind) for name, (value, kind) in values.items()})
