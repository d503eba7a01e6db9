"""All owners of a fleet, each measured. It changes nothing of what it passes on."""

from __future__ import annotations

from collections.abc import Mapping

from enforcer.clock import Clock
from enforcer.metrics.measured import MeasuredOwner
from enforcer.metrics.metrics import Metrics
from enforcer.owners.passing import PassedOn
from enforcer.owners.port import Owner, Owners


class MeasuredOwners(PassedOn):
    """Implements `Owners` by others."""

    def __init__(self, owners: Owners, metrics: Metrics, *, clock: Clock) -> None:
        super().__init__(owners)
        self._metrics = metrics
        self._clock = clock
        self._measured: dict[str, tuple[Owner, MeasuredOwner]] = {}

    @property
    def nodes(self) -> Mapping[str, Owner]:
        """See `Owners.nodes`."""
        nodes = self._owners.nodes
        for name, owner in nodes.items():
            known = self._measured.get(name)
            if known is None or known[0] is not owner:
                self._measured[name] = (owner, MeasuredOwner(owner, self._metrics, name=name, clock=self._clock))
        return {name: self._measured[name][1] for name in nodes}
