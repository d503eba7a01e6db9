"""Decisions into the order of the table, from whatever order its parts gave them in, and whether any is there twice.

The order is that of the table's key: caller, minute, copy, epoch, seq. To have the engine merge its parts costs four
times as much as to sort numbers here (docs/decisions/0018). Pure: changes nothing that it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from aggregator.core.fairness import in_python
from aggregator.core.fairness.layout import Int64s, UInt32s


class Arranger:
    """Arranges by the function `arrange` of one of the two modules."""

    __slots__ = ("_arrange",)

    def __init__(self, arrange: Any) -> None:
        self._arrange = arrange

    def arrange(
        self,
        callers: Sequence[str],
        caller: UInt32s,
        copies: Sequence[str],
        copy: UInt32s,
        *,
        at_us: Int64s,
        epoch: Any,
        seq: Any,
    ) -> tuple[UInt32s, int]:
        """The places of the rows in the order of the table.

        Args:
            callers: names of callers.
            caller: [n], which of them each row is of.
            copies: names of copies.
            copy: [n], which of them each row is of.
            at_us: [n], unix microseconds.
            epoch: [n], unsigned, 64 bits.
            seq: [n], the same.

        Returns:
            the places, [n], and how many rows have a key that another has too; of which is which, nothing is said.

        Raises:
            ValueError: columns differ in length, or point outside the names.
            TypeError: a column is of another type than it should be.
        """  # fmt: skip
        order = np.empty(len(caller), np.uint32)
        return order, self._arrange(caller, _ranks(callers), copy, _ranks(copies), at_us, epoch, seq, order)


def _ranks(names: Sequence[str]) -> UInt32s:
    """Where each name stands among all, sorted; the same one for the same name."""
    place = {name: number for number, name in enumerate(sorted(set(names)))}
    return np.array([place[name] for name in names], np.uint32)


def _compiled() -> Arranger | None:
    try:
        from aggregator.core.fairness import _replay  # noqa: PLC0415  (absent where there was no compiler)
    except ImportError:
        return None
    return Arranger(_replay.arrange)


IN_PYTHON: Final = Arranger(in_python.arrange)
#: None where the distribution was built without a C compiler.
COMPILED: Final = _compiled()
BEST: Final = IN_PYTHON if COMPILED is None else COMPILED
