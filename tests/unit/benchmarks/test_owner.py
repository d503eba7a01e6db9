"""The benchmark of the owner must notice when the buckets do not hold what they must."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from benchmarks.owner import CALLERS, Fleet
from benchmarks.report import WrongCount
from enforcer.messages import Answer, Ask, AskFault
from enforcer.owners.memory import MemoryOwner

START_US = 1_780_000_000_000_000


class ForgetfulOwner(MemoryOwner):
    """Ignores what is settled of every hundredth ask."""

    asked = 0

    def ask(self, asks: Sequence[Ask]) -> list[Answer | AskFault]:
        """As the owner in memory, nearly."""
        answers: list[Answer | AskFault] = []
        for ask in asks:
            self.asked += 1
            if self.asked % 100 == 0 and ask.settlements:
                answers += super().ask([msgspec.structs.replace(ask, settlements=())])
            else:
                answers += super().ask([ask])
        return answers


def test_fleet_of_an_exact_owner_passes_its_check() -> None:
    """Else every run would fail."""
    fleet = Fleet(MemoryOwner(now_us=lambda: START_US), 4)
    fleet.ask(8 * CALLERS)
    fleet.check()


def test_fleet_of_a_forgetful_owner_fails_its_check() -> None:
    """Fast and wrong is not fast."""
    fleet = Fleet(ForgetfulOwner(now_us=lambda: START_US), 4)
    fleet.ask(8 * CALLERS)
    with pytest.raises(WrongCount, match="expected"):
        fleet.check()
