"""Errors cross processes: a pool of workers, a task queue and an error tracker pickle what a worker raises."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Callable

import pytest

import enforcer
from enforcer.core.quota import OutsideCalendar
from enforcer.decorators import Refused
from enforcer.errors import InvalidField, OwnerUnavailable, PolicyAway, PolicyError, PolicyFault
from enforcer.messages import AskFault
from tests.unit.enforcer.harness import Fleet, make_policy


def _refused() -> Refused:
    limiter = Fleet(make_policy(rate_per_s=1, burst=1)).limiter
    limiter.check("acme")
    return Refused(limiter.check("acme"))


#: How those are made that take more than a message.
_MADE: dict[type[Exception], Callable[[], Exception]] = {
    InvalidField: lambda: InvalidField("cost", -1, "0 or more"),
    PolicyError: lambda: PolicyError("p.yaml", [PolicyFault("a", 1, "wrong"), PolicyFault("b", None, "wrong")]),
    PolicyAway: lambda: PolicyAway("redis://h:1/0?key=p", "refused"),
    OwnerUnavailable: lambda: OwnerUnavailable("timed out", where="at redis://h:1/0"),
    OutsideCalendar: lambda: OutsideCalendar(AskFault("another time", 7)),
    Refused: _refused,
}


def _classes() -> list[type[Exception]]:
    found: set[type[Exception]] = set()
    for module in pkgutil.walk_packages(enforcer.__path__, "enforcer."):
        if not module.name.endswith("__main__"):
            members = vars(importlib.import_module(module.name)).values()
            found |= {one for one in members if inspect.isclass(one) and issubclass(one, Exception)}
    return sorted((one for one in found if one.__module__.startswith("enforcer.")), key=lambda one: one.__qualname__)


@pytest.mark.parametrize("kind", _classes())
@pytest.mark.parametrize("again", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_every_error_can_be_copied_and_sent_to_another_process(
    kind: type[Exception], again: Callable[[Exception], Exception]
) -> None:
    """One that cannot be unpickled kills the pool that waits for it, and hides what it was about."""
    error = _MADE.get(kind, lambda: kind("what is wrong"))()
    error.add_note("where")
    other = again(error)
    assert type(error) is type(other)
    assert (str(error), error.args) == (str(other), other.args)
    assert vars(error) == vars(other)


def test_every_error_of_its_own_making_is_tried() -> None:
    """A class whose constructor takes more would be tried with a message alone, and pass by chance."""
    assert set(_MADE) == {kind for kind in _classes() if "__init__" in vars(kind)}
