"""A caller's time in pieces that hold few enough decisions to be read or deleted one after the other.

Counts and divides; never reads a decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from aggregator.sql import load_queries
from aggregator.store import Store
from aggregator.words import Span

_COUNTS = load_queries("aggregator.sql", "export.sql")["export_counts"].sql
_SECOND_US = 1_000_000


class Cell(NamedTuple):
    """A time (unix seconds), how long it is, and how many decisions it holds: at least one."""

    start_s: int
    seconds: int
    decisions: int


def pieces(store: Store, caller: str, span: Span, *, most: int) -> Iterator[Span]:
    """The span in pieces of few enough decisions, as far as seconds can tell them apart; empty times left out."""
    return cut(span, _cells(store, caller, span, most), most=most)


def _cells(store: Store, caller: str, span: Span, most: int) -> Iterator[Cell]:
    """Minutes of a span, and seconds of those minutes that hold too much for one piece, with their decisions."""
    for start_s, count in store.rows(_COUNTS, {"caller": caller, "unit_s": 60, **span.parameters}):
        if int(count) <= most:
            yield Cell(int(start_s), 60, int(count))
            continue
        within = _within(span, int(start_s) * _SECOND_US, (int(start_s) + 60) * _SECOND_US)
        for second_s, held in store.rows(_COUNTS, {"caller": caller, "unit_s": 1, **within.parameters}):
            yield Cell(int(second_s), 1, int(held))


def cut(span: Span, cells: Iterable[Cell], *, most: int) -> Iterator[Span]:
    """Cells of a span, in order of time, put together as long as they hold at most so many decisions."""
    held, first_us, end_us = 0, 0, 0
    for cell in cells:
        if held and held + cell.decisions > most:
            yield _within(span, first_us, end_us)
            held = 0
        first_us = first_us if held else cell.start_s * _SECOND_US
        held, end_us = held + cell.decisions, (cell.start_s + cell.seconds) * _SECOND_US
    if held:
        yield _within(span, first_us, end_us)


def _within(span: Span, from_us: int, to_us: int) -> Span:
    return Span(max(span.from_us, from_us), min(span.to_us, to_us))
