"""Which hours of the ledger are summed when minutes are settled."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from aggregator.settler.passes.ledger import hours_due, minutes_looked

HOUR_US, MINUTE_US = 3_600_000_000, 60_000_000


@pytest.mark.parametrize(
    ("minutes", "settled_minute", "hours"),
    [
        ([600], 601, []),
        ([608], 609, []),
        ([609], 610, [9, 10]),
        ([619], 620, [10]),
        ([659], 660, [9, 10]),
        ([612, 613], 900, [10]),
        ([600, 601, 660], 662, [10]),
    ],
)
def test_hours_are_summed_as_they_fill_and_again_when_late_facts_may_have_come(
    minutes: Sequence[int], settled_minute: int, hours: Sequence[int]
) -> None:
    """Every minute would be too often, once too early: grants are settled and given back after their decisions."""
    assert hours == hours_due(minutes, settled_minute * MINUTE_US)


@pytest.mark.parametrize(
    ("minutes", "settled_minute", "looked"),
    [
        ([600], 601, []),
        ([609], 610, list(range(600, 610))),
        ([605], 620, [605]),
        ([605, 629], 630, [605, *range(620, 630)]),
    ],
)
def test_every_settled_minute_is_looked_at_for_older_grants_once_it_is_late_or_its_ten_minutes_are_over(
    minutes: Sequence[int], settled_minute: int, looked: Sequence[int]
) -> None:
    """A decision may take of a grant of the hour before, and a settlement may come hours later: these hours change."""
    assert looked == minutes_looked(minutes, settled_minute * MINUTE_US)
