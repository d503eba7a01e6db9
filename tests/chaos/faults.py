"""What can happen to a running stack: each fault by name, drawn by dice that a seed fixes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.parts import Part
from tests.chaos.points import POINTS, Act, Fault
from tests.chaos.stack import BROKER, DATABASE, OWNER, READERS, Stack
from tests.processes import freeze, thaw, wait_until

#: A process that does not come to its point in so long is not doing its work. On a slow machine a start alone takes a
#: minute; one that has ended meanwhile is not waited for.
_POINT_S = 240.0
_BRIEF_S = (1.0, 6.0)
#: Longer than a session of the consumer groups.
_LONG_S = (6.0, 20.0)


@dataclass(frozen=True, slots=True)
class Happening:
    """One fault: what it says it does, and the doing."""

    text: str
    do: Callable[[], None]


def draw(dice: random.Random, stack: Stack) -> Happening:
    """The next fault; points come up as often as everything else together."""
    if dice.random() < 0.5:
        return _at_point(dice, stack)
    choices: list[Callable[[], Happening]] = [
        lambda: _kill(dice.choice([*READERS, *stack.copies]), stack),
        lambda: _freeze_part(dice.choice([*READERS, *stack.copies]), stack, dice.uniform(*_LONG_S)),
        lambda: _freeze_engine(dice.choice([OWNER, BROKER, DATABASE]), stack, dice.uniform(*_BRIEF_S)),
        lambda: _freeze_engine(dice.choice([BROKER, DATABASE]), stack, dice.uniform(*_LONG_S)),
        lambda: _kill_engine(dice.choice([OWNER, BROKER, DATABASE]), stack),
        lambda: _second(dice.choice(READERS), stack, dice.uniform(*_LONG_S)),
    ]
    return dice.choice(choices)()


@dataclass(frozen=True, slots=True)
class Armed:
    """A process that runs with a fault armed, and the file that is there once it has happened."""

    part: Part
    fault: Fault
    mark: Path

    def meet(self, stack: Stack, *, frozen_s: float) -> None:
        """Wait until it has happened, and bring the process back."""
        broker = stack.engines[BROKER]
        if self.fault.point.without_broker:
            freeze(broker.pid)
        try:
            what = f"{self.part.name} at the point {self.fault.point.name!r}"
            wait_until(self._happened, _POINT_S, what=what, poll_s=0.05)
        finally:
            thaw(broker.pid)
        if self.fault.act == "kill":
            self.part.restart()
        else:
            time.sleep(frozen_s)
            thaw(self.part.pid)

    def _happened(self) -> bool:
        """Whether the mark is there; fails if the process has ended without having come to its point."""
        if self.mark.exists():
            return True
        ended = self.part.process.poll()
        if ended is not None and not self.mark.exists():
            said = self.part.log_path.read_text()[-3000:]
            raise AssertionError(
                f"{self.part.name} ended by itself with {ended} before {self.fault.point.name!r}:\n{said}"
            )
        return False


def arm(stack: Stack, fault: Fault) -> Armed:
    """Restart the process of the point with the fault armed."""
    part = stack.named(fault.point.part)
    return Armed(part, fault, part.restart_with(fault))


def _at_point(dice: random.Random, stack: Stack) -> Happening:
    acts: list[Act] = ["kill", "freeze"]
    point = dice.choice(list(POINTS.values()))
    fault = Fault(point, dice.choice(acts), nth=dice.randint(1, point.most))
    frozen_s = dice.uniform(*_LONG_S)
    text = f"{fault.act} the {fault.point.part} at {fault.point.name!r}, time {fault.nth}"
    return Happening(text, lambda: arm(stack, fault).meet(stack, frozen_s=frozen_s))


def _kill(name: str, stack: Stack) -> Happening:
    return Happening(f"kill {name}", stack.parts[name].kill_and_restart)


def _freeze_part(name: str, stack: Stack, seconds: float) -> Happening:
    return Happening(f"freeze {name} for {seconds:.1f} s", lambda: stack.parts[name].freeze_for(seconds))


def _freeze_engine(name: str, stack: Stack, seconds: float) -> Happening:
    return Happening(f"freeze the {name} for {seconds:.1f} s", lambda: stack.engines[name].freeze_for(seconds))


def _kill_engine(name: str, stack: Stack) -> Happening:
    return Happening(f"kill the {name}", stack.engines[name].kill_and_restart)


def _second(name: str, stack: Stack, seconds: float) -> Happening:
    """A second process of a kind joins, and after a while the first is killed: partitions move twice."""

    def act() -> None:
        second = stack.parts[name].twin()
        try:
            time.sleep(seconds)
            stack.parts[name].kill_and_restart()
            time.sleep(seconds)
            second.require()
            assert second.end() == 0, f"the second {name} did not end in order"
        finally:
            second.stop()

    return Happening(f"a second {name} joins for {2 * seconds:.1f} s, and the first is killed meanwhile", act)
