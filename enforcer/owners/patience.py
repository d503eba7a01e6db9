"""How long one call to a node may take: one value for all nodes of a fleet, which a new policy changes."""

from __future__ import annotations


class Patience:
    """`seconds`: above 0; read anew for each call."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
