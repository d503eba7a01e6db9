"""Whether another version of the policy may come into force, and that the owners go by it. Keeps no policy."""

from __future__ import annotations

from enforcer.errors import ConfigError, PolicyError, PolicyFault
from enforcer.owners.governed import GovernedOwners
from enforcer.owners.port import Owners
from enforcer.policies.model import Policy


def is_another(policy: Policy, in_force: Policy) -> bool:
    """Whether it is another policy than the one in force.

    Raises:
        PolicyError: it is, and its version is not above.
    """
    if policy == in_force:
        return False
    if policy.version <= in_force.version:
        what = "with other content" if policy.version == in_force.version else "which was in force before"
        fault = f"is {policy.version}, {what}; allowed: above {in_force.version}"
        raise PolicyError("(policy)", [PolicyFault("version", None, fault)])
    return True


def govern(owners: Owners, policy: Policy) -> None:
    """Have the owners place and wait by the policy; those that were given ready-made are as they were given.

    Raises:
        PolicyError: it places callers where these owners have no node; nothing has changed then.
    """
    if isinstance(owners, GovernedOwners):
        try:
            owners.go_by(policy.owners, policy.timeouts.ask_ms / 1e3)
        except ConfigError as fault:
            raise PolicyError("(policy)", [PolicyFault("owners", None, str(fault))]) from fault
