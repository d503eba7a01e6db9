"""Settled totals counted from columns of numbers are those that a plain count gives, however the parts cut the rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.core.fairness.arranging import BEST, IN_PYTHON
from aggregator.core.fairness.layout import MINUTE_US
from aggregator.core.fairness.rows import Rows, rows_of
from aggregator.core.settled import counting
from aggregator.core.settled.counting import cells_of, charged_of, fleet_of, spent_of, summed
from enforcer.types import Reason, Source

_START_US = 29_833_920 * MINUTE_US
_NAMES = st.sampled_from(["acme", "beta", "zeta", "åäö"])
_ROW = st.fixed_dictionaries(
    {
        "caller": _NAMES,
        "limit": st.sampled_from(["rate", "tenant"]),
        "plan": st.just("ten"),
        "copy_id": st.sampled_from(["gw-1", "gw-10", "gw-2"]),
        "scope": st.sampled_from(["GET /", "POST /"]),
        "policy_version": st.integers(1, 2),
        "at_us": st.integers(0, 3 * MINUTE_US).map(lambda at: at + _START_US),
        "cost_tokens": st.sampled_from([0, 1, 3, 2**32 - 1]),
        "code": st.builds(lambda source, reason: int(source) << 4 | int(reason), st.sampled_from(Source),
                          st.sampled_from(Reason)),
        "retry_after_ms": st.just(0),
        "grant_id": st.sampled_from([0, 7, 2**53]),
        "epoch": st.integers(1, 2),
        "seq": st.integers(0, 5),
        "charged": st.lists(st.tuples(_NAMES, st.sampled_from(["rate", "site"]), st.sampled_from([0, 7])), max_size=2),
    }
)  # fmt: skip
_KEY = ("caller", "minute", "copy_id", "epoch", "seq")


def _found(parts: list[list[dict[str, Any]]]) -> pa.Table:
    """Rows as the engine answers: one chunk a part, each with dictionaries of its own."""
    kinds = {
        **dict.fromkeys(("policy_version", "cost_tokens"), pa.uint32()), "at_us": pa.int64(), "code": pa.uint8(),
        "retry_after_ms": pa.int32(), **dict.fromkeys(("grant_id", "epoch", "seq"), pa.uint64()),
    }  # fmt: skip
    tables = []
    for rows in parts:
        columns: dict[str, Any] = {name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()}
        for name in ("caller", "limit", "plan", "copy_id", "scope"):
            columns[name] = pa.array([row[name] for row in rows], pa.string()).dictionary_encode()
        for place, (name, kind) in enumerate(
            (("subjects", pa.string()), ("limits", pa.string()), ("grants", pa.uint64()))
        ):
            charged = [[charge[place] for charge in row["charged"]] for row in rows]
            columns[f"charged_{name}"] = pa.array(charged, pa.list_(kind))
        tables.append(pa.table(columns))
    return pa.concat_tables(tables)


def _keyed(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple({**row, "minute": row["at_us"] // MINUTE_US}[name] for name in _KEY)


@given(st.lists(st.lists(_ROW, min_size=1, max_size=12), min_size=1, max_size=4))
def test_rows_come_in_the_order_of_the_table_and_repeats_are_seen(parts: list[list[dict[str, Any]]]) -> None:
    """What is read without the engine's folding counts twice where a repeat is missed."""
    given_rows = [row for part in parts for row in part]
    rows = rows_of(_found(parts))
    ordered = sorted(given_rows, key=_keyed)
    assert [row["caller"] for row in ordered] == [rows.caller.names[number] for number in rows.caller.numbers]
    assert [row["copy_id"] for row in ordered] == [rows.copy.names[number] for number in rows.copy.numbers]
    assert sorted(row["at_us"] for row in ordered) == sorted(rows.at_us.tolist())
    assert rows.repeats == len(given_rows) - len({_keyed(row) for row in given_rows})


@given(st.lists(_ROW, min_size=1, max_size=40), st.permutations(range(4)))
def test_arranging_in_python_is_arranging_in_c(rows: list[dict[str, Any]], ranks: list[int]) -> None:
    """Without a compiler the same rows must be folded."""
    names = ["acme", "beta", "zeta", "åäö"]
    caller = np.array([names.index(row["caller"]) for row in rows], np.uint32)
    copy = np.array([ranks[int(row["copy_id"][3:]) % 4] for row in rows], np.uint32)
    columns: dict[str, Any] = {
        "at_us": np.array([row["at_us"] for row in rows], np.int64),
        "epoch": np.array([row["epoch"] for row in rows], np.uint64),
        "seq": np.array([row["seq"] for row in rows], np.uint64),
    }
    (one, seen), (other, too) = (
        arranger.arrange(names, caller, ["c", "a", "d", "b"], copy, **columns) for arranger in (BEST, IN_PYTHON)
    )
    assert (one.tolist(), seen) == (other.tolist(), too)


@given(st.lists(st.lists(_ROW, min_size=1, max_size=12), min_size=1, max_size=4))
def test_totals_are_those_of_a_plain_count(parts: list[list[dict[str, Any]]]) -> None:
    """Bills stand on them."""
    given_rows = [row for part in parts for row in part]
    rows = rows_of(_found(parts))
    cells, fleet = _plain(given_rows)
    assert cells == {
        (row.pop("caller"), row.pop("minute").timestamp() // 60, row.pop("scope")): tuple(row.values())
        for row in _all_cells(rows)
    }
    assert fleet == fleet_of(rows)


@given(st.lists(_ROW, min_size=1, max_size=12))
def test_totals_are_the_same_where_places_are_many_and_sums_are_large(given_rows: list[dict[str, Any]]) -> None:
    """A million callers over a hundred scopes are looked for by sorting; a double does not hold every sum."""
    rows = rows_of(_found([given_rows]))
    usual = _all_cells(rows), fleet_of(rows)
    with pytest.MonkeyPatch.context() as patch:
        for bound in ("_EXACT", "_PLACES", "_FEW_PLACES"):
            patch.setattr(counting, bound, 0)
        assert usual == (_all_cells(rows), fleet_of(rows))


@given(st.lists(st.lists(_ROW, min_size=1, max_size=12), min_size=1, max_size=4))
def test_what_was_spent_of_grants_is_a_plain_sum(parts: list[list[dict[str, Any]]]) -> None:
    """The ledger stands on it; what others were charged to a limit lies beside what its caller spent."""
    spent: Counter[tuple[Any, ...]] = Counter()
    for row in (row for part in parts for row in part):
        if row["code"] & 15 == 0 and row["cost_tokens"]:
            known = [charge for charge in row["charged"] if charge[0] != "zeta"]
            for subject, limit, grant in [(row["caller"], row["limit"], row["grant_id"]), *known]:
                if grant:
                    spent[subject, limit, grant, row["at_us"] // MINUTE_US] += row["cost_tokens"]
    rows = rows_of(_found(parts))
    found = summed([spent_of(rows), charged_of(rows, ["zeta", "nobody"])]).to_pylist()
    keys = [(row["caller"], row["limit"], row["grant_id"], row["minute"].timestamp() // 60) for row in found]
    assert dict(zip(keys, (row["spent"] for row in found), strict=True)) == spent
    assert len(set(keys)) == len(keys)


def test_columns_that_do_not_fit_are_refused() -> None:
    """A column that is shorter than the others would make C read beyond its end."""
    short, long = np.zeros(1, np.uint32), np.zeros(2, np.uint32)
    wide: dict[str, Any] = {
        "at_us": np.zeros(2, np.int64),
        "epoch": np.zeros(2, np.uint64),
        "seq": np.zeros(2, np.uint64),
    }
    for arranger in (BEST, IN_PYTHON):
        with pytest.raises(ValueError, match="differ in length"):
            arranger.arrange(["a"], short, ["c"], long, **wide)
        with pytest.raises(ValueError, match="outside its ranks"):
            arranger.arrange(["a"], long + np.uint32(1), ["c"], long, **wide)


def _all_cells(rows: Rows) -> list[dict[str, Any]]:
    cells = cells_of(rows)
    found: list[dict[str, Any]] = cells.table(np.ones(len(cells.counts), bool)).to_pylist()
    return found


def _plain(rows: list[dict[str, Any]]) -> tuple[dict[Any, tuple[int, ...]], dict[Any, tuple[int, ...]]]:
    cells: dict[Any, list[int]] = {}
    fleet: dict[Any, list[int]] = {}
    for row in rows:
        minute, cost, reason = row["at_us"] // MINUTE_US, row["cost_tokens"], row["code"] & 15
        admitted, alone = int(reason == Reason.NONE), int(row["code"] >> 4 == Source.DEGRADED)
        refused = [int(reason == one) for one in Reason if one is not Reason.NONE]
        cell = cells.setdefault((row["caller"], minute, row["scope"]), [0] * 10)
        for place, number in enumerate([1, admitted, *refused, alone, cost, cost * admitted]):
            cell[place] += number
        of_all = fleet.setdefault((minute, row["scope"], row["policy_version"], row["code"]), [0] * 4)
        for place, number in enumerate([1, admitted, cost, cost * admitted]):
            of_all[place] += number
    return {key: tuple(cell) for key, cell in cells.items()}, {key: tuple(one) for key, one in fleet.items()}
