"""Whether a record that was rebuilt from the log may take the place of the one in use."""

from __future__ import annotations

import pytest

from aggregator.replay.rebuild import holds

_NOW = {("decisions", 0, "log-2"): 7, ("decisions", 1, "log-2"): 3}


@pytest.mark.parametrize(
    ("in_use", "held"),
    [
        ({}, True),
        (_NOW, True),
        ({("decisions", 0, "log-2"): 6}, True),
        ({("decisions", 0, "log-2"): 8}, False),
        ({**_NOW, ("decisions", 0, "log-1"): 2}, False),
        ({**_NOW, ("grants", 0, "log-2"): 1}, False),
        ({("decisions", 0, ""): 2}, False),
    ],
)
def test_rebuilt_record_must_hold_every_log_of_the_one_in_use(
    in_use: dict[tuple[str, int, str], int], held: bool
) -> None:
    """A topic that was made anew begins at 0 as well: by offsets alone, 5,000 decisions were exchanged for none."""
    assert held is holds(_NOW, in_use)
