"""The simplest of fleets: one owner that holds every bucket."""

from __future__ import annotations

from collections.abc import Mapping

from enforcer.owners.port import Owner


class OneOwner:
    """Implements `Owners` for one node."""

    def __init__(self, owner: Owner, *, name: str) -> None:
        """Take the owner, and its address as it may be shown."""
        self._name = name
        self._nodes = {name: owner}

    @property
    def nodes(self) -> Mapping[str, Owner]:
        """See `Owners.nodes`."""
        return self._nodes

    @property
    def version(self) -> int:
        """See `Owners.version`."""
        return 0

    def place(self, caller: str, limit: str) -> str:  # noqa: ARG002 - the port's: here all are in one place
        """See `Owners.place`."""
        return self._name

    def refresh(self) -> bool:
        """See `Owners.refresh`."""
        return False

    def close(self) -> None:
        """See `Owners.close`."""
