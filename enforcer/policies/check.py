"""The command that checks policies before anything runs with them: files, or what is in Redis. Never changes one."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from enforcer.errors import ConfigError, PolicyError
from enforcer.policies.model import Policy
from enforcer.policies.sources import read_only_from, source_of


def main(arguments: Sequence[str]) -> int:
    """``check FILE...``: 0 if all are valid policies, 1 if one is not, 2 for a wrong call."""
    if len(arguments) < 2 or arguments[0] != "check":
        sys.stderr.write("usage: python -m enforcer.policies check FILE...\n")
        return 2
    status = 0
    for where in arguments[1:]:
        try:
            policy = read_only_from(where)
        except (ConfigError, PolicyError) as error:
            sys.stderr.write(f"{error}\n")
            status = 1
        else:
            sys.stdout.write(f"{source_of(where).name}: version {policy.version}, {_held(policy)}: valid\n")
    return status


def _held(policy: Policy) -> str:
    """How much of everything it has; `limits` are those beside the plans' own rates."""
    limits = len(policy.limits) + sum(len(plan.limits) for plan in policy.plans.values())
    counts = {"plan": len(policy.plans), "caller": len(policy.callers), "scope": len(policy.scopes), "limit": limits}
    return ", ".join(f"{number} {what if number == 1 else f'{what}s'}" for what, number in counts.items())
