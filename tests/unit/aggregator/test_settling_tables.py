"""The settler's questions: none grows with the number of callers that it is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from aggregator.settler.naming import MOST_NAMED, MOST_NAMED_BYTES
from aggregator.settler.table import SettlingTables

_MINUTE = 28_333_440


class Asked:
    """A store that answers which decisions were re-driven: one of each caller that is named."""

    def __init__(self, redrives: int) -> None:
        self._redrives = redrives
        self.named: list[list[str]] = []

    def rows(self, sql: str, parameters: Mapping[str, Any] | None = None) -> Sequence[tuple[Any, ...]]:
        values = parameters or {}
        if "callers" not in values:
            return [(self._redrives,)]
        self.named.append(values["callers"])
        return [(_MINUTE, caller, 1, 1) for caller in values["callers"]]

    def arrow(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        raise AssertionError("no columns are asked for")

    def insert(self, table: str, batch: pa.Table) -> None:
        raise AssertionError("nothing is written")

    def command(self, sql: str, parameters: Mapping[str, Any] | None = None) -> None:
        raise AssertionError("nothing is written")

    def close(self) -> None:
        """Nothing is open."""


def test_redriven_decisions_of_many_callers_are_asked_for_in_groups() -> None:
    """A hundred thousand names in one address are more than a server takes: the settler would end on them."""
    callers = {f"caller-{number:06}" for number in range(20_000)} | {"x" * MOST_NAMED_BYTES, "y" * MOST_NAMED_BYTES}
    store = Asked(redrives=1)
    found = SettlingTables(store).redriven([_MINUTE], callers)
    assert {(_MINUTE, caller): (1, 1) for caller in callers} == found
    assert max(len(group) for group in store.named) <= MOST_NAMED
    assert max(sum(map(len, group)) for group in store.named) <= MOST_NAMED_BYTES


def test_nobody_is_asked_about_where_nothing_was_redriven() -> None:
    """Nearly always: a fault of the live totals must not cost a thousand questions that find nothing."""
    store = Asked(redrives=0)
    assert {} == SettlingTables(store).redriven([_MINUTE], {f"caller-{number}" for number in range(20_000)})
    assert [] == store.named
