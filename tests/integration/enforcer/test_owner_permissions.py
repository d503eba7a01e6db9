"""The ACL line of the documentation is enough, none of it is too much, and a wrong password is said without it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from enforcer.errors import OwnerUnavailable
from enforcer.messages import Answer, Ask
from enforcer.owners.asking import ask_server
from enforcer.owners.redis import RedisOwner
from enforcer.types import Plan
from tallygate.engines.valkey import Valkey

HOWTO = Path(__file__).resolve().parents[3] / "docs" / "howto" / "many-owners.md"
_LINE = re.search(r"^ACL SETUSER (tallygate .*)$", HOWTO.read_text(), re.MULTILINE)
assert _LINE is not None
RULES = _LINE[1].split()
_MORE = re.search(r"In a cluster also `([^`]+)`", HOWTO.read_text())
assert _MORE is not None
CLUSTER_RULES = _MORE[1].split()
ASK = Ask("acme", "rate", Plan("standard", 100.0, 200), "gw-1/1", 1, (), 1, 0, 0.0, 1, 0.0)


def _set_user(server: Valkey, *more: str) -> None:
    ask_server(server.url, ("ACL", "SETUSER", *RULES, *more), timeout_s=5.0)


def _owner(server: Valkey, password: str) -> RedisOwner:
    return RedisOwner(f"redis://tallygate:{password}@{server.address}/0", timeout_s=5.0)


def test_documented_permissions_are_enough(fresh_valkey: Valkey) -> None:
    """Whoever copies the line must not find out in production what is missing."""
    _set_user(fresh_valkey)
    owner = _owner(fresh_valkey, "a-long-password")
    owner.probe()
    (outcome,) = owner.ask([ASK])
    assert isinstance(outcome, Answer)
    owner.close()


@pytest.mark.parametrize("needed", ["evalsha", "time", "hmget", "hset", "pexpire"])
def test_each_permission_is_needed(fresh_valkey: Valkey, needed: str) -> None:
    """A line that grants more than is used is copied all the same."""
    _set_user(fresh_valkey, f"-{needed}")
    owner = _owner(fresh_valkey, "a-long-password")
    with pytest.raises(OwnerUnavailable):
        owner.ask([ASK])
    owner.close()


def test_wrong_password_is_said_without_it(fresh_valkey: Valkey) -> None:
    """It ends up in the log of every gateway."""
    _set_user(fresh_valkey)
    owner = _owner(fresh_valkey, "quite-another")
    with pytest.raises(OwnerUnavailable, match="AuthenticationError") as caught:
        owner.probe()
    assert "quite-another" not in str(caught.value)
    owner.close()
