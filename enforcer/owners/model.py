"""What a policy may say of the nodes of a ring: who has one of their own, and which take more. Never does I/O."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, PositiveInt


class OwnersModel(BaseModel):
    """The part ``owners`` of a policy. Nodes are named by their address without credentials."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pin: dict[str, str] = Field(default_factory=dict)
    """The node of a caller, whatever the ring says."""
    reserved: frozenset[str] = frozenset()
    """Nodes that hold pinned callers only."""
    weights: dict[str, PositiveInt] = Field(default_factory=dict)
    """How many shares of the callers a node takes; 1 where nothing is said."""
