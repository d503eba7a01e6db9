"""Owners that go by the policy in force: who is placed by hand, and how long a call may take. Never does I/O."""

from __future__ import annotations

from enforcer.errors import ConfigError
from enforcer.owners.model import OwnersModel
from enforcer.owners.one import OneOwner
from enforcer.owners.passing import PassedOn
from enforcer.owners.patience import Patience
from enforcer.owners.port import Owners
from enforcer.owners.ring import Ring

_EVEN = OwnersModel()


class GovernedOwners(PassedOn):
    """Implements `Owners` by others."""

    def __init__(self, owners: Owners, patience: Patience, *, placing: Owners | None = None) -> None:
        """Take the owners, what all their nodes wait by, and who does the placing if `owners` only passes it on."""
        super().__init__(owners)
        self._patience = patience
        self._placing = owners if placing is None else placing

    def go_by(self, placing: OwnersModel | None, timeout_s: float) -> None:
        """Place, and wait, by another version of the policy from the next call on.

        Raises:
            ConfigError: the placing does not fit these owners; nothing has changed then.
        """
        wanted = _EVEN if placing is None else placing
        match self._placing:
            case Ring() as ring:
                ring.replace(wanted)
            case OneOwner() as one:
                # A ring of one node: whoever is pinned to it is there anyway.
                Ring(one.nodes, wanted)
            case _ if wanted != _EVEN:
                raise ConfigError("owners place callers on a ring; allowed: none with a cluster or sentinels")
        self._patience.seconds = timeout_s
