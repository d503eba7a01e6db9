"""The ring places evenly, alike everywhere, and moves no more than it must."""

from __future__ import annotations

from collections import Counter

import pytest

from enforcer.errors import ConfigError
from enforcer.owners.memory import MemoryOwner
from enforcer.owners.model import OwnersModel
from enforcer.owners.ring import Ring

CALLERS = [f"caller-{n}" for n in range(20_000)]
RECORDED = ["node-4", "node-1", "node-3", "node-4"]


def _ring(count: int, placing: OwnersModel | None = None) -> Ring:
    nodes = {f"node-{n}": MemoryOwner(now_us=lambda: 0) for n in range(count)}
    return Ring(nodes, placing or OwnersModel())


def _placed(ring: Ring) -> dict[str, str]:
    return {caller: ring.place(caller, "rate") for caller in CALLERS}


def test_placing_is_the_same_in_every_process_and_version() -> None:
    """Two copies that disagree give a caller two buckets. Recorded once; never to change."""
    assert [_ring(5).place(caller, "rate") for caller in ("acme", "", "é\udcff", "x" * 100)] == RECORDED


def test_every_node_takes_its_part() -> None:
    """A node with twice the callers is the one that fails."""
    counts = Counter(_placed(_ring(5)).values())
    assert max(counts.values()) < 1.05 * len(CALLERS) / 5
    assert min(counts.values()) > 0.95 * len(CALLERS) / 5


def test_weight_is_a_number_of_shares() -> None:
    """A node of twice the size takes twice the callers."""
    counts = Counter(_placed(_ring(3, OwnersModel(weights={"node-1": 2}))).values())
    assert counts["node-1"] == pytest.approx(len(CALLERS) / 2, rel=0.05)


def test_added_node_takes_its_part_and_nobody_else_moves() -> None:
    """A caller that moves starts with a full bucket: as few as can be may."""
    before, after = _placed(_ring(4)), _placed(_ring(5))
    moved = {caller for caller in CALLERS if before[caller] != after[caller]}
    assert {after[caller] for caller in moved} == {"node-4"}
    assert len(moved) == pytest.approx(len(CALLERS) / 5, rel=0.05)


def test_pinned_caller_has_its_node_and_a_reserved_node_nobody_else() -> None:
    """A big caller gets a node of its own, from one request to the next."""
    ring = _ring(4)
    others = _placed(ring)
    placing = OwnersModel(pin={"acme": "node-3"}, reserved=frozenset({"node-3"}))
    assert ring.replace(placing)
    assert not ring.replace(placing)
    assert ring.version == 1
    assert ring.place("acme", "rate") == "node-3"
    placed = _placed(ring)
    assert set(placed.values()) == {"node-0", "node-1", "node-2"}
    assert [c for c in CALLERS if others[c] != placed[c] and others[c] != "node-3"] == []


@pytest.mark.parametrize(
    ("said", "placing"),
    [
        ("owners.pin names the node 'away'; allowed: node-0, node-1", OwnersModel(pin={"a": "away"})),
        ("owners.weights names the node 'away'", OwnersModel(weights={"away": 2})),
        ("leaves no node", OwnersModel(reserved=frozenset({"node-0", "node-1"}))),
    ],
)
def test_wrong_placing_is_named_and_changes_nothing(said: str, placing: OwnersModel) -> None:
    """A slip in a reloaded policy must not leave a caller without a node."""
    ring = _ring(2)
    before = ring.place("a", "rate")
    with pytest.raises(ConfigError, match=said):
        ring.replace(placing)
    assert (ring.place("a", "rate"), ring.version) == (before, 0)
