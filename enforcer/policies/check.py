"""The command that checks policies before anything runs with them: files, or what is in Redis. Never changes one."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from enforcer.errors import ConfigError, PolicyError
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
            named = f"{len(policy.plans)} plans, {len(policy.callers)} callers, {len(policy.scopes)} scopes"
            sys.stdout.write(f"{source_of(where).name}: version {policy.version}, {named}: valid\n")
    return status
