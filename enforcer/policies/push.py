"""The command that puts a policy into Redis, for every gateway that follows it there. Nothing with faults is pushed."""

from __future__ import annotations

import sys

from enforcer.config import DEFAULT_POLICY_PATH, EnforcerConfig
from enforcer.errors import ConfigError
from enforcer.policies.addresses import is_address, read_policy_address
from enforcer.policies.loader import parse_policy, read_policy
from enforcer.policies.stored import StoredPolicy


def push_policy(path: str, *, to: str | None) -> int:
    """``policy push FILE --to ADDRESS``: 0 if it is there now.

    Args:
        path: the policy file.
        to: the address, as `read_policy_address` takes it; None: that of ``TALLYGATE_POLICY``.

    Raises:
        ConfigError: there is no such address.
        PolicyError: the file has faults, the server does not take it, or what is there must not be replaced by it.
    """
    where = EnforcerConfig.from_env().policy_path if to is None else to
    if to is None and where == DEFAULT_POLICY_PATH:
        raise ConfigError("where to? give --to redis://host:6379/0?key=tallygate:policy, or set TALLYGATE_POLICY")
    if not is_address(where):
        named = "TALLYGATE_POLICY" if to is None else "--to"
        shown = "no address" if "@" in where else repr(where)
        raise ConfigError(f"{named} is {shown}; allowed: an address such as redis://host:6379/0?key=tallygate:policy")
    document = read_policy(path)
    policy = parse_policy(document, source=path)
    stored = StoredPolicy(read_policy_address(where))
    try:
        outcome = stored.push(document, source=path)
    finally:
        stored.close()
    said = "pushed" if outcome == "pushed" else "was there already"
    sys.stdout.write(f"{path}: version {policy.version}: {said}: {stored.name}\n")
    return 0
