"""What a policy says of the protection: how many requests a copy may have in flight. Never counts any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, model_validator

from enforcer.core.inflight import Rooms, bound_of, rooms_of
from enforcer.policies.limits import Location, PolicyModel


class CapRule(PolicyModel):
    """The bound on requests in flight in each copy.

    It is ``fleet.ceiling_per_s ÷ fleet.copies × latency``, where `latency_ms` is how long a request takes while the
    service is not saturated; or `max_in_flight`, where that is known better. The two reserves are shares of it:
    `reserve_high` is for scopes of priority high, `reserve_normal` for those and the normal ones. With `adaptive` the
    bound is the most, and each copy looks for a smaller one by latency; it is at least a tenth.
    """

    latency_ms: float = Field(default=100, gt=0, le=600_000)
    max_in_flight: int | None = Field(default=None, ge=1, le=1_000_000)
    reserve_high: float = Field(default=0.1, ge=0, lt=1)
    reserve_normal: float = Field(default=0.1, ge=0, lt=1)
    adaptive: bool = False

    @model_validator(mode="after")
    def _leaves_room(self) -> Self:
        if self.reserve_high + self.reserve_normal >= 1:
            raise ValueError(
                f"reserve_high and reserve_normal are {self.reserve_high:g} and {self.reserve_normal:g}; "
                "allowed: together below 1, or nothing of low priority is ever let in"
            )
        return self

    def rooms(self, *, ceiling_per_s: float | None, copies: int) -> Rooms:
        """The bound of one copy and its reserves.

        Raises:
            ValueError: neither a ceiling nor `max_in_flight` says how much there is; a valid policy has one.
        """
        if self.max_in_flight is not None:
            bound = self.max_in_flight
        elif ceiling_per_s is not None:
            bound = bound_of(ceiling_per_s, copies, self.latency_ms / 1e3)
        else:
            raise ValueError("neither ceiling_per_s nor max_in_flight is given")
        return rooms_of(bound, reserve_normal=self.reserve_normal, reserve_high=self.reserve_high)


def cap_fault(document: Mapping[str, Any]) -> tuple[Location, str] | None:
    """What is wrong between the cap and the fleet of a policy document, with its place; None if nothing is."""
    cap, fleet = document.get("cap"), document.get("fleet")
    if not isinstance(cap, Mapping) or cap.get("max_in_flight") is not None:
        return None
    if isinstance(fleet, Mapping) and fleet.get("ceiling_per_s") is not None:
        return None
    return ("cap",), "has no bound; allowed: with fleet.ceiling_per_s, or with max_in_flight"
