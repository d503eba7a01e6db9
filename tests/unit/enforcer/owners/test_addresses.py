"""One setting names all forms of owners; what is wrong is said without the password. And what is learnt is followed."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from enforcer.errors import ConfigError, OwnerUnavailable
from enforcer.owners.addresses import owners_from_url, read_many
from enforcer.owners.cluster import ClusterOwners, read_slots
from enforcer.owners.memory import MemoryOwner
from enforcer.owners.model import OwnersModel
from enforcer.owners.redis import RedisOwner
from enforcer.owners.sentinel import SentinelOwners


@pytest.mark.parametrize(
    ("url", "names"),
    [
        ("redis://u:secret@a", ["redis://a:6379/0"]),
        ("redis://a:1,redis://b:2/3 rediss://:secret@c", ["redis://a:1/0", "redis://b:2/3", "rediss://c:6379/0"]),
        ("redis+cluster://u:secret@a:1,b", ["redis://a:1/0", "redis://b:6379/0"]),
        ("rediss+sentinel://u:secret@a:1,b:2/main", ["rediss+sentinel://a:1,b:2/main"]),
    ],
)
def test_each_form_names_its_nodes_without_credentials(url: str, names: list[str]) -> None:
    """Names end up in logs, events and pages."""
    owners = owners_from_url(url, timeout_s=1.0)
    assert list(owners.nodes) == names
    assert owners.place("acme", "rate") in names


@pytest.mark.parametrize(
    "url",
    [
        "redis://u:secret@a,redis://a",
        "redis+cluster://u:secret@a/main",
        "redis+sentinel://u:secret@a",
        "redis+cluster://u:secret@",
        "redis+other://u:secret@a",
        "redis+cluster://u:secret@a:port",
        "redis+cluster://u:secret@a/?sentinel_password=secret",
        "rediss+cluster://u:secret@a/?ssl_ca_certs=/not/there.pem",
        "rediss+sentinel://u:secret@a/main?ssl_certfile=/not/there.pem",
        "rediss://u:secret@a?ssl_keyfile=/not/there.key",
        "redis://u:12/secret@a",
        "redis://u:99999#secret@a",
        "redis://u:12?secret@a",
        "redis://u:12#secret@a",
        "redis+sentinel://u:12/secret@a",
        "redis+cluster://u:12?secret@a",
    ],
)
def test_wrong_address_is_refused_without_its_password(url: str) -> None:
    """What no retry can mend must not start."""
    with pytest.raises(ConfigError) as caught:
        owners_from_url(url, timeout_s=1.0)
    assert "allowed" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_documented_placing_is_one() -> None:
    """Whoever copies it gets what it says: a node of its own for one, and twice the callers on another."""
    howto = Path(__file__).resolve().parents[4] / "docs" / "howto" / "many-owners.md"
    said = re.search(r"```yaml\n(.*?)```", howto.read_text(), re.DOTALL)
    assert said is not None
    placing = OwnersModel.model_validate(yaml.safe_load(said[1])["owners"])
    owners = owners_from_url("redis://a:6379,redis://b,redis://c", timeout_s=1.0, placing=placing)
    assert owners.place("acme", "rate") == "redis://a:6379/0"
    placed = Counter(owners.place(f"caller-{n}", "rate") for n in range(3_000))
    assert placed.keys() == {"redis://b:6379/0", "redis://c:6379/0"}
    assert placed["redis://b:6379/0"] == pytest.approx(2_000, rel=0.1)


def test_what_is_read_of_an_address_is_shown_without_its_password() -> None:
    """A representation is what a debugger, a failing test and an error tracker show."""
    assert "secret" not in repr(read_many("redis+cluster://u:secret@a:1,b"))


def test_pins_belong_to_a_ring() -> None:
    """A cluster places by itself: a pin that does nothing would be believed."""
    with pytest.raises(ConfigError, match="ring"):
        owners_from_url("redis+cluster://a", timeout_s=1.0, placing=OwnersModel(pin={"acme": "a"}))


class _Told:
    """What the servers say, by address; an address that is not there is away."""

    def __init__(self) -> None:
        self.said: dict[str, Any] = {}
        self.asked: list[str] = []
        self.now_s = 0.0

    def ask(self, url: str, command: tuple[bytes | str, ...], *, timeout_s: float) -> Any:
        self.asked.append(url)
        if url not in self.said:
            raise OwnerUnavailable("away")
        return self.said[url]


def test_cluster_keeps_the_owners_of_nodes_that_stay() -> None:
    """Their connections, breakers and threads are not to be torn down by another node's failover."""
    told = _Told()
    owners = ClusterOwners(
        ["redis://a:1/0"],
        url_of=lambda host, port: f"redis://{host}:{port}/0",
        owner_of=lambda url: RedisOwner(url, timeout_s=1.0),
        timeout_s=1.0,
        ask=told.ask,
        monotonic=lambda: told.now_s,
    )
    assert not owners.refresh()
    told.said["redis://a:1/0"] = [[0, 8191, [b"", 1, b"id"]], [8192, 16383, [b"b", 2, b"id"], [b"c", 3, b"id"]]]
    assert not owners.refresh()
    assert len(told.asked) == 1
    told.now_s = 1.0
    before = dict(owners.nodes)
    assert owners.refresh()
    assert list(owners.nodes) == ["redis://a:1/0", "redis://b:2/0"]
    assert owners.nodes["redis://a:1/0"] is before["redis://a:1/0"]
    assert owners.version == 1
    told.said["redis://a:1/0"] = [[0, 8191, [b"a", 1, b"id"]], [8192, 16383, [b"c", 3, b"id"]]]
    told.now_s = 2.0
    assert owners.refresh()
    assert {owners.place(f"caller-{n}", "rate") for n in range(50)} == {"redis://a:1/0", "redis://c:3/0"}
    told.now_s = 3.0
    assert not owners.refresh()


@pytest.mark.parametrize("reply", [None, b"OK", [[0, 1]], [[0, 16384, [b"a", 1]]], [[5, 4, [b"a", 1]]]])
def test_reply_of_another_form_is_no_topology(reply: object) -> None:
    """Half a table would place callers on nodes that do not hold them."""
    with pytest.raises(ValueError, match="CLUSTER SLOTS"):
        list(read_slots(reply))


def test_sentinels_are_asked_in_turn_and_the_master_followed() -> None:
    """One sentinel that is away must not keep a fleet from its new master."""
    told = _Told()
    masters = {url: MemoryOwner(now_us=lambda: 0) for url in ("redis://m:1/0", "redis://m:2/0")}
    owners = SentinelOwners(
        ["redis://s:1/0", "redis://s:2/0"],
        "main",
        name="service",
        url_of=lambda host, port: f"redis://{host}:{port}/0",
        owner_of=masters.__getitem__,
        timeout_s=1.0,
        ask=told.ask,
        monotonic=lambda: told.now_s,
    )
    node = owners.nodes["service"]
    with pytest.raises(OwnerUnavailable, match="no sentinel names its master: away"):
        node.probe()
    told.now_s += 1
    told.said["redis://s:2/0"] = [b"m", b"1"]
    # Found at the first use: a copy must not begin with an outage.
    node.probe()
    for port in (b"1", b"2"):
        told.now_s += 1
        told.said["redis://s:2/0"] = [b"m", port]
        assert owners.refresh() == (port == b"2")
        node.probe()
        assert owners.nodes["service"] is node
    with pytest.raises(OwnerUnavailable, match="closed"):
        masters["redis://m:1/0"].probe()
    node.close()
    with pytest.raises(OwnerUnavailable, match="closed"):
        node.probe()
