"""Which terms a flush shows, and which of them are still to be written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from aggregator.core.record import terms
from aggregator.core.record.batches import Gathered, PlacedBlock
from aggregator.core.record.terms import Held, TermsWritten, terms_shown
from stream.contract.block import BlockPlan
from tests.recordblocks import Made, at, make_block

_PRO = BlockPlan("pro", 10.0, 20)


def _flush(*decisions: Sequence[Made]) -> Gathered:
    return Gathered([at(make_block(made), 5 + number, partition=number) for number, made in enumerate(decisions)])


def _rows(written: TermsWritten, gathered: Gathered) -> list[tuple[object, ...]]:
    names = ("caller", "limit", "policy_version", "plan", "per", "log_partition", "log_offset")
    batches = written.unwritten(terms_shown(gathered))
    return sorted(tuple(row[name] for name in names) for batch in batches for row in batch.rows.to_pylist())


@pytest.mark.parametrize("bounds", [{}, {"_MARKED": 0}, {"_CLOSE": 0}, {"_COUNTABLE": 0}])
def test_terms_shown_names_each_caller_once_under_each_of_its_terms(
    monkeypatch: pytest.MonkeyPatch, bounds: dict[str, int]
) -> None:
    """A caller has several limits, versions and plans in one flush; a mix-up would be a wrong fairness audit.

    Whatever way it takes: there is one for many callers, one for odd policy versions, one for forged blocks.
    """
    for name, bound in bounds.items():
        monkeypatch.setattr(terms, name, bound)
    gathered = _flush(
        [Made("b"), Made("a"), Made("a", cost=3), Made("a", policy_version=4)],
        [],
        [Made("a", limit="day", plan="quota", per="day"), Made("b"), Made("c", policy_version=2**32 - 1)],
    )
    assert [
        ("a", "day", 3, "quota", "day", 2, 7),
        ("a", "sustained", 3, "pro", "", 0, 5),
        ("a", "sustained", 4, "pro", "", 0, 5),
        ("b", "sustained", 3, "pro", "", 0, 5),
        ("c", "sustained", 2**32 - 1, "pro", "", 2, 7),
    ] == _rows(TermsWritten(), gathered)


def test_terms_shown_tells_plans_of_one_name_apart() -> None:
    """The plan's figures may change under its name and number: both were in force for somebody."""
    block = make_block([Made()])
    dearer = replace(block, bases=replace(block.bases, plans=[BlockPlan("pro", 99.0, 20)]))
    shown = terms_shown(Gathered([PlacedBlock(block, 0, 1), PlacedBlock(dearer, 0, 2)]))
    assert {Held("sustained", 3, _PRO), Held("sustained", 3, BlockPlan("pro", 99.0, 20))} == shown.keys()


def test_terms_written_are_not_written_again_until_they_are_forgotten() -> None:
    """Bounded memory: two generations, and what was shown lately outlives the change."""
    written = TermsWritten(remembered=3)
    for callers, new in (("ab", "ab"), ("ab", ""), ("cd", "cd"), ("a", ""), ("efgh", "efgh"), ("a", ""), ("b", "b")):
        gathered = _flush([Made(caller) for caller in callers])
        assert list(new) == [row[0] for row in _rows(written, gathered)], callers
        written.learn(terms_shown(gathered))


@pytest.mark.parametrize("gathered", [Gathered([]), _flush([], [])])
def test_terms_shown_of_heartbeats_are_none(gathered: Gathered) -> None:
    """An idle fleet writes nothing."""
    assert {} == terms_shown(gathered)
    assert [] == TermsWritten().unwritten({})
