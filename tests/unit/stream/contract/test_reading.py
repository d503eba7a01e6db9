"""Reading one slot of many objects: the reader in C and the one in Python say the same, of good and of bad input."""

from __future__ import annotations

import gc
import random
import sys
from typing import Any

import msgspec
import pytest

from enforcer.types import Verdict
from stream.contract.layout import UnencodableBlock
from stream.contract.reading import Reader
from tests.verdicts import basis, verdict


class _Slots(msgspec.Struct):
    """A class with a slot for anything."""

    value: Any = msgspec.UNSET


class _Special(Verdict, frozen=True):
    """A verdict with more to it."""


def _holding(*values: object) -> list[_Slots]:
    return [_Slots(value) for value in values]


@pytest.mark.parametrize(
    "values",
    [[], [0], [-1], [2**63 - 1, -(2**63)], [True, False], [2**30, 2**31, 2**32, 2**60, -(2**30), -(2**62)]],
)
def test_integers_come_as_they_are(reader: Reader, values: list[int]) -> None:
    """A bit lost here would be a token, or a second, in a customer's record."""
    assert list(map(int, values)) == reader.integers(_holding(*values), _Slots.value).tolist()


@pytest.mark.parametrize("wrong", [2**63, -(2**63) - 1, 2**200, 1.0, None, "7"])
def test_what_is_no_integer_of_64_bits_is_named(reader: Reader, wrong: object) -> None:
    """Whoever reads the log must see which decision was lost, and why."""
    with pytest.raises(UnencodableBlock) as fault:
        reader.integers(_holding(1, -1, wrong, 3), _Slots.value)
    assert f"value is {wrong!r}; allowed: an integer of at most 64 bits" == str(fault.value)


def test_distinct_values_are_told_apart_by_identity_in_order(reader: Reader) -> None:
    """What only looks alike must not be merged: it would bill one customer for another."""
    chance = random.Random(5)
    objects = [object() for _ in range(20_000)]
    for size in (0, 1, 300, 20_000):
        taken = chance.choices(objects[:size], k=2 * size) if size else []
        values, index = reader.distinct(_holding(*taken), _Slots.value)
        assert list({id(one): one for one in taken}.values()) == values
        assert all(one is values[at] for one, at in zip(taken, index.tolist(), strict=True))


def test_objects_of_a_subclass_are_read(reader: Reader) -> None:
    """A slot stands where its own class put it."""
    on = basis()
    special = _Special(1, 2, on, True, 0, 5, 6, 0)
    assert [5, 1] == reader.integers([special, verdict(0)], Verdict.cost).tolist()
    assert [on] == reader.distinct([special], Verdict.basis)[0]


@pytest.mark.parametrize("call", ["integers", "distinct"])
def test_objects_without_the_slot_are_refused(reader: Reader, call: str) -> None:
    """Reading at an offset that means something else would end the process."""
    with pytest.raises((TypeError, AttributeError)):
        getattr(reader, call)([verdict(0), object()], Verdict.cost)


def test_reading_keeps_no_object_alive_and_drops_none(reader: Reader) -> None:
    """One reference too many is a leak in every gateway; one too few ends it."""
    value = object()
    objects = _holding(*[value] * 50)
    before = sys.getrefcount(value)
    for _ in range(100):
        reader.distinct(objects, _Slots.value)
        with pytest.raises(UnencodableBlock):
            reader.integers(objects, _Slots.value)
    gc.collect()
    assert before == sys.getrefcount(value)


@pytest.mark.parametrize("reader", ["compiled"], indirect=True)
def test_a_list_that_shrinks_while_it_is_read_is_refused(reader: Reader, request: pytest.FixtureRequest) -> None:
    """A finalizer may run wherever an object is made; reading past the end of the list would end the process."""
    objects: list[_Slots] = []
    outcomes: set[str] = set()

    def shrink(phase: str, _info: object) -> None:
        # Not before: the reader's own method is what waits for the compiled one.
        if phase == "start" and sys._getframe(1).f_code.co_name == "distinct":
            objects.clear()

    threshold = gc.get_threshold()
    request.addfinalizer(lambda: gc.set_threshold(*threshold))
    gc.callbacks.append(shrink)
    request.addfinalizer(lambda: gc.callbacks.remove(shrink))
    # The collector runs after so many new objects: one of these numbers is reached by the list that the reader makes.
    for number in range(1, 60):
        objects = _holding(*range(50))
        # Kept, so that none of CPython's spare lists is left and one has to be made.
        held: list[list[int]] = [[] for _ in range(1_000)]
        gc.set_threshold(1_000_000)
        gc.collect()
        gc.set_threshold(number)
        try:
            outcomes.add(f"{len(reader.distinct(objects, _Slots.value)[1])} read")
        except RuntimeError as fault:
            outcomes.add(str(fault))
        gc.set_threshold(*threshold)
        del held
    assert "objects changed its length while it was read" in outcomes
    assert outcomes <= {"objects changed its length while it was read", "50 read", "0 read"}
