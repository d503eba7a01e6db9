"""Tells objects that their process was forked: in the child only the thread that forked is left.

A lock that another thread held is never released there, counts are of requests that are served elsewhere, and chance
repeats itself. Starts and closes nothing, in neither process.
"""

from __future__ import annotations

import os
import random
import weakref
from collections.abc import Callable
from typing import Protocol


class Forkable(Protocol):
    """What must not be in a child as it was in its parent."""

    def after_fork(self) -> None:
        """In the child, at the fork: renew locks and forget, and no more than that. It must not raise."""
        ...


def tell_of_forks(one: Forkable) -> None:
    """Have `one` told in every child that is forked while it lives."""
    _told.add(one)


def own_chance() -> Callable[[], float]:
    """A source of numbers, uniform in [0, 1), that is no other's: neither the application's nor another process's.

    Not the module's own: whoever seeds that one must get from it what it would without us.
    """
    chance = random.Random()  # noqa: S311 - spreads retries, keeps no secret
    _chances.add(chance)
    return chance.random


def _tell_all() -> None:
    for chance in tuple(_chances):
        chance.seed()
    for one in tuple(_told):
        one.after_fork()


_told: weakref.WeakSet[Forkable] = weakref.WeakSet()
_chances: weakref.WeakSet[random.Random] = weakref.WeakSet()
os.register_at_fork(after_in_child=_tell_all)
