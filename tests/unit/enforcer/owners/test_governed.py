"""Owners go by the policy that is in force, not by the one that they were made under."""

from __future__ import annotations

from typing import cast

import pytest

from enforcer.clock import ManualClock
from enforcer.errors import ConfigError, OwnerUnavailable, PolicyError
from enforcer.identity import new_identity
from enforcer.limiting.limiter import Limiter
from enforcer.owners.addresses import owners_from_url
from enforcer.owners.governed import GovernedOwners
from enforcer.owners.memory import MemoryOwner
from enforcer.owners.model import OwnersModel
from enforcer.owners.patience import Patience
from enforcer.owners.redis import RedisOwner
from enforcer.owners.ring import Ring
from enforcer.settings import LimiterSettings
from enforcer.testing import RecordingSink
from tests.unit.enforcer.harness import make_policy

_ONE = "redis://one:6379/0"


def _limiter(clock: ManualClock) -> tuple[Limiter, GovernedOwners]:
    nodes = {name: MemoryOwner(now_us=clock.unix_us) for name in ("a", "b")}
    owners = GovernedOwners(Ring(nodes, OwnersModel(pin={"acme": "a"})), Patience(0.05))
    settings = LimiterSettings(threaded=False, jitter=lambda: 0.5)
    policy = make_policy(owners={"pin": {"acme": "a"}})
    identity = new_identity("copy", unix_ms=1, pid=1)
    return Limiter(policy, owners, RecordingSink(), identity, settings=settings, clock=clock), owners


def test_a_caller_that_is_pinned_elsewhere_is_asked_for_there_from_the_next_ask_on() -> None:
    """Who is moved off a node that is to be emptied must not stay there until the next deployment."""
    clock = ManualClock()
    limiter, owners = _limiter(clock)
    limiter.check("acme")
    limiter.apply(make_policy(version=2, owners={"pin": {"acme": "b"}}))
    assert limiter.check("acme", cost=50).allowed
    there = cast("MemoryOwner", owners.nodes["b"]).bucket("acme", "rate")
    assert there is not None
    assert ["b"] == [account.node for account in limiter._directory.accounts]


def test_a_policy_that_names_a_node_that_is_not_there_is_refused_and_changes_nothing() -> None:
    """E19: the last good policy stays, whole; half of it in force would be neither."""
    limiter, owners = _limiter(ManualClock())
    with pytest.raises(PolicyError, match=r"owners\.pin names the node 'c'; allowed: a, b"):
        limiter.apply(make_policy(version=2, timeouts={"ask_ms": 7}, owners={"pin": {"acme": "c"}}))
    assert (1, "a", 0.05) == (limiter.policy.version, owners.place("acme", "rate"), owners._patience.seconds)


@pytest.mark.parametrize("url", [_ONE, "redis+cluster://one:6379", "redis+sentinel://one:26379/main"])
def test_callers_can_only_be_placed_where_there_are_several_nodes(url: str) -> None:
    """What cannot be done must be said, or whoever wrote it believes that it was."""
    patience = Patience(0.05)
    owners = GovernedOwners(owners_from_url(url, timeout_s=patience), patience)
    with pytest.raises(ConfigError, match="allowed: "):
        owners.go_by(OwnersModel(pin={"acme": "redis://two:6379/0"}), 0.1)
    owners.go_by(None, 0.1)
    assert 0.1 == patience.seconds


def test_how_long_a_call_may_take_is_the_policys_of_now() -> None:
    """Requests that give up after 50 ms must not find an asker that waits five seconds for a frozen owner."""
    patience = Patience(5.0)
    owners = GovernedOwners(owners_from_url(_ONE, timeout_s=patience), patience)
    owner = cast("RedisOwner", owners.nodes[_ONE])
    assert 5.0 == owner._timeout_s
    owners.go_by(None, 0.05)
    assert 0.05 == owner._timeout_s


def test_the_next_connection_is_opened_as_fast_as_the_policy_of_now_allows() -> None:
    """A frozen server takes connections and never greets: each attempt would wait as long as ever."""
    patience = Patience(5.0)
    owner = RedisOwner("redis://127.0.0.1:1/0", timeout_s=patience)
    patience.seconds = 0.05
    with pytest.raises(OwnerUnavailable):
        owner.probe()
    assert 0.05 == owner._pool.connection_kwargs["socket_connect_timeout"]
