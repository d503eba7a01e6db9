"""Equal bases are found whatever the quick comparison says of them."""

from __future__ import annotations

import numpy as np
import pytest

from stream.contract import canonical
from stream.contract.canonical import first_appearances, unequal_rows
from stream.contract.columns import Ints


def columns(*rows: tuple[int, int]) -> list[Ints]:
    return [np.array(column, np.int64) for column in zip(*rows, strict=True)]


def found(*rows: tuple[int, int]) -> tuple[list[int], list[int]] | None:
    alike = unequal_rows(columns(*rows))
    return None if alike is None else (alike[0].tolist(), alike[1].tolist())


def test_rows_that_all_differ_are_left_alone() -> None:
    """Nearly every block is such: it must cost no more than a look."""
    assert found((1, 2), (2, 1), (1, 1)) is None


def test_equal_rows_are_numbered_by_first_appearance() -> None:
    """The order is part of the bytes."""
    assert ([0, 1, 4], [0, 1, 0, 1, 2]) == found((9, -1), (1, 2), (9, -1), (1, 2), (5, 5))


@pytest.mark.parametrize("mix", [0, 7])
def test_rows_that_only_look_alike_stay_apart(monkeypatch: pytest.MonkeyPatch, mix: int) -> None:
    """A mix of 64 bits may be the same for two callers: merging them would bill one for the other."""
    monkeypatch.setattr(canonical, "_mixed", lambda given: np.full(len(given[0]), mix, np.uint64))
    assert found((1, 2), (2, 1), (1, 1)) is None
    assert ([0, 1, 4], [0, 1, 0, 1, 2]) == found((9, -1), (1, 2), (9, -1), (1, 2), (5, 5))


def test_first_appearances_of_an_index() -> None:
    """Lists of names stand in this order."""
    values, places = first_appearances(np.array([4, 2, 4, 9, 2]))
    assert ([4, 2, 9], [0, 1, 0, 2, 1]) == (values.tolist(), places.tolist())
