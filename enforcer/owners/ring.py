"""Independent nodes, and a placing of callers that every process computes alike (rendezvous hashing).

Each node draws a number for a caller, one for each share of its weight; the highest wins. A node that is added takes
its part from all others, and one that is taken away leaves the rest where it was. Never does I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

from enforcer.errors import ConfigError
from enforcer.owners.model import OwnersModel
from enforcer.owners.port import Owner

_EVEN = OwnersModel()


class Ring:
    """Implements `Owners`. All limits of a caller are on one node."""

    def __init__(self, nodes: Mapping[str, Owner], placing: OwnersModel = _EVEN) -> None:
        """Take the nodes by name, and who is placed by hand.

        Raises:
            ConfigError: there is no node, none is left for the unpinned, or the placing names one that is not there.
        """
        self._nodes = dict(nodes)
        self._version = 0
        self._placing = placing
        self._shares = _shares(self._nodes, placing)

    @property
    def nodes(self) -> Mapping[str, Owner]:
        """See `Owners.nodes`."""
        return self._nodes

    @property
    def version(self) -> int:
        """See `Owners.version`."""
        return self._version

    def place(self, caller: str, limit: str) -> str:  # noqa: ARG002 - the port's: a caller's limits are in one place
        """See `Owners.place`."""
        pinned = self._placing.pin.get(caller)
        if pinned is not None:
            return pinned
        who = caller.encode("utf-8", "surrogatepass")
        return max((blake2b(who, digest_size=8, key=share).digest(), name) for share, name in self._shares)[1]

    def replace(self, placing: OwnersModel) -> bool:
        """Place by another part of the policy from now on; returns whether that is a change.

        Raises:
            ConfigError: as in the constructor; nothing has changed then.
        """
        if placing == self._placing:
            return False
        self._shares, self._placing = _shares(self._nodes, placing), placing
        self._version += 1
        return True

    def refresh(self) -> bool:
        """See `Owners.refresh`: the nodes are as they were set."""
        return False

    def close(self) -> None:
        """See `Owners.close`."""


def _shares(nodes: Mapping[str, Owner], placing: OwnersModel) -> list[tuple[bytes, str]]:
    known = ", ".join(nodes) or "none"
    named = [("pin", name) for name in placing.pin.values()]
    named += [("reserved", name) for name in sorted(placing.reserved)] + [("weights", name) for name in placing.weights]
    for field, name in named:
        if name not in nodes:
            raise ConfigError(f"owners.{field} names the node {name!r}; allowed: {known}")
    shares = [
        (blake2b(f"{share}/{name}".encode(), digest_size=32).digest(), name)
        for name in nodes
        if name not in placing.reserved
        for share in range(placing.weights.get(name, 1))
    ]
    if not shares:
        raise ConfigError(f"owners.reserved leaves no node for the other callers; nodes: {known}")
    return shares
