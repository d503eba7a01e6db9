"""Owners that stand before others and pass on what they do not change. It does nothing by itself."""

from __future__ import annotations

from collections.abc import Mapping

from enforcer.owners.port import Owner, Owners


class PassedOn:
    """Implements `Owners` by others; for those to build on that add to one of its parts."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners

    @property
    def nodes(self) -> Mapping[str, Owner]:
        """See `Owners.nodes`."""
        return self._owners.nodes

    @property
    def version(self) -> int:
        """See `Owners.version`."""
        return self._owners.version

    def place(self, caller: str, limit: str) -> str:
        """See `Owners.place`."""
        return self._owners.place(caller, limit)

    def refresh(self) -> bool:
        """See `Owners.refresh`."""
        return self._owners.refresh()

    def close(self) -> None:
        """See `Owners.close`."""
        self._owners.close()
