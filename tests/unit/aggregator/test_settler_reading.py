"""What the settler leaves out of the decisions that it reads."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from aggregator.core.fairness.rows import Rows
from aggregator.core.record.erased import Erased, Erasure, who_hash
from aggregator.settler.passes.reading import without_erased
from tests.replaying import START_US
from tests.unit.aggregator.core.test_fairness_buckets import found

SALT = b"0123456789abcdef"
CALLERS = st.sampled_from(["acme", "beta", "zeta"])


def _said(rows: Rows) -> list[tuple[Any, ...]]:
    """Each decision as caller, time, cost, and whose limits it was charged to."""
    charged: dict[int, list[str]] = {}
    for row, number in zip(rows.charges.row.tolist(), rows.charges.subject.numbers.tolist(), strict=True):
        charged.setdefault(row, []).append(rows.charges.subject.names[number])
    callers = [rows.caller.names[number] for number in rows.caller.numbers.tolist()]
    return [
        (callers[place], int(rows.at_us[place]) - START_US, int(rows.cost[place]), sorted(charged.get(place, [])))
        for place in range(len(rows))
    ]


@given(st.lists(st.tuples(CALLERS, st.integers(0, 9), st.lists(CALLERS, max_size=2)), max_size=20), st.integers(0, 9))
def test_erased_decisions_and_charges_are_left_out_and_all_others_stay_as_they_are(
    made: list[tuple[str, int, list[str]]], before: int
) -> None:
    """One too many would be written back; one too few, and what the caller does since is in no bill."""
    rows = found(
        *(
            {"caller": caller, "at_us": at_us, "cost_tokens": cost, "charged_subjects": paid,
             "charged_limits": ["x"] * len(paid)}
            for cost, (caller, at_us, paid) in enumerate(made)
        )
    )  # fmt: skip
    erased = Erased([Erasure(1, START_US + before, SALT, who_hash(SALT, "beta"))])
    expected = [
        (caller, at_us, cost, [one for one in paid if one != "beta" or at_us >= before])
        for caller, at_us, cost, paid in _said(rows)
        if caller != "beta" or at_us >= before
    ]
    assert expected == _said(without_erased(rows, erased))
    assert _said(rows) == _said(without_erased(rows, erased.since(START_US + before)))
