"""The enforcer's settings, read from the environment once, all faults at once. The only place that reads it."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from enforcer.errors import ConfigError, InvalidField
from enforcer.identity import new_identity
from enforcer.policies.addresses import is_address, read_policy_address

DEFAULT_OWNER_URL = "redis://127.0.0.1:16379/0"
DEFAULT_POLICY_PATH = "policy.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnforcerConfig:
    """Where a copy finds its owner and policy, and what it is called.

    Attributes:
        owner_url: address of the owner or owners, as `enforcer.owners.addresses` takes it; not shown, it may hold a
            password.
        policy_path: the policy file, or the address of one in Redis, as `enforcer.policies.addresses` takes it; not
            shown either.
        copy_id: stable name of this process slot, 1 to 63 characters of ``A-Z a-z 0-9 . _ -``.
    """

    owner_url: str = field(default=DEFAULT_OWNER_URL, repr=False)
    policy_path: str = field(default=DEFAULT_POLICY_PATH, repr=False)
    copy_id: str

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> EnforcerConfig:
        """Read ``TALLYGATE_OWNER_URL``, ``TALLYGATE_POLICY`` and ``TALLYGATE_COPY_ID``; empty counts as not set.

        Raises:
            ConfigError: names every setting that is wrong. Never shows the owner's address, which may hold a password.
        """
        environ = os.environ if environ is None else environ
        config = cls(
            owner_url=environ.get("TALLYGATE_OWNER_URL") or DEFAULT_OWNER_URL,
            policy_path=environ.get("TALLYGATE_POLICY") or DEFAULT_POLICY_PATH,
            copy_id=environ.get("TALLYGATE_COPY_ID") or default_copy_id(socket.gethostname(), os.getpid()),
        )
        faults = []
        if re.match(r"(rediss?|unix|rediss?\+(cluster|sentinel))://", config.owner_url) is None:
            scheme, found, _ = config.owner_url.partition("://")
            # Without one, the text may be anything, a password too.
            shown = scheme if found and scheme.isalnum() else "(none)"
            faults.append(
                f"TALLYGATE_OWNER_URL has the scheme {shown!r}; allowed: redis://, rediss://, unix://, "
                "redis+cluster://, rediss+cluster://, redis+sentinel://, rediss+sentinel://"
            )
        try:
            if is_address(config.policy_path):
                read_policy_address(config.policy_path)
        except ConfigError as fault:
            faults.append(f"TALLYGATE_POLICY: {fault}")
        try:
            new_identity(config.copy_id, unix_ms=0, pid=0)
        except InvalidField as fault:
            faults.append(f"TALLYGATE_COPY_ID: {fault}")
        if faults:
            raise ConfigError("; ".join(faults))
        return config


def default_copy_id(hostname: str, pid: int) -> str:
    """``<hostname>-<pid>`` with only the characters that a copy's name may have."""
    host = re.sub(r"[^A-Za-z0-9._-]", "-", hostname).lstrip("._-")[:48] or "copy"
    return f"{host}-{pid}"
