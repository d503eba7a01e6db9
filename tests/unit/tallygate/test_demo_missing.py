"""What is said of decisions that went with a gateway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tallygate.demo.missing import LostGateway, Missing, missing_of


class _Store:
    """Answers the one query with these rows."""

    def __init__(self, *rows: tuple[Any, ...]) -> None:
        self._rows = rows

    def rows(self, _sql: str, _parameters: Mapping[str, Any] | None = None) -> Sequence[tuple[Any, ...]]:
        return self._rows


def test_missing_names_the_gap_of_the_copys_epoch() -> None:
    """Whoever reads the record later must find the same gap in it."""
    lost = [LostGateway("gw-002", "http://127.0.0.1:2", -9)]
    (found,) = missing_of(lost, {"http://127.0.0.1:2": 1_240}, _Store(("gw-002", 17, 1_198, 0, 1_197)))  # type: ignore[arg-type]  # only what is asked of a store
    assert 42 == found.decisions
    assert found.sentence == (
        "gw-002 ended with signal SIGKILL; the record holds seq 0 to 1,197 of its epoch 17; it answered 1,240: "
        "42 decisions are missing, 42 of them from seq 1,198 on"
    )


def test_missing_says_so_when_nothing_or_everything_is_missing() -> None:
    """Both happen: killed right after a block was shipped, and before the first."""
    assert Missing("gw-1", 1, 10, 12, 5, 0, 11).sentence == (
        "gw-1 ended with exit code 1; the record holds seq 0 to 11 of its epoch 5: all that it answered"
    )
    lost = [LostGateway("gw-1", "a", -9)]
    assert "none of its decisions is on record: all 7" in missing_of(lost, {"a": 7}, _Store())[0].sentence  # type: ignore[arg-type]  # only what is asked of a store
    assert [] == missing_of([], {}, _Store())  # type: ignore[arg-type]  # not asked at all


def test_missing_tells_of_holes_within_what_is_held() -> None:
    """A block that was lost before the last one is not at the end."""
    within = Missing("gw-1", -9, 12, 10, 5, 0, 11).sentence
    assert within.endswith(
        "seq 0 to 11 of its epoch 5, without 2 between them; it answered 12: 2 decisions are missing"
    )
    both = Missing("gw-1", -9, 15, 10, 5, 0, 11).sentence
    assert both.endswith("it answered 15: 5 decisions are missing, 3 of them from seq 12 on")
