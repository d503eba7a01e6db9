"""Where a policy comes from: a file, or a key of Redis; both are looked at and read in the same way.

Never applies a policy, and never writes one.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Protocol

from enforcer.errors import PolicyAway
from enforcer.policies.addresses import is_address, read_policy_address
from enforcer.policies.loader import parse_policy, read_policy
from enforcer.policies.model import Policy
from enforcer.policies.stored import StoredPolicy, digest_of

log = logging.getLogger("enforcer")


class PolicySource(Protocol):
    """One place of one policy document. Used from one thread at a time."""

    name: str
    """As it may be shown: without credentials."""

    def mark(self) -> object:
        """What changes whenever the document does, found cheaply. Raises `PolicyAway` if nobody answers."""
        ...

    def read(self) -> bytes:
        """The document.

        Raises:
            PolicyAway: nobody answers.
            PolicyError: there is none.
        """
        ...

    def close(self) -> None:
        """Release what is held; safe to call twice."""
        ...


class FilePolicy:
    """Implements `PolicySource` on a file."""

    def __init__(self, path: str | Path) -> None:
        self.name = str(path)
        self._path = Path(path)

    def mark(self) -> object:
        """See `PolicySource.mark`: zeros while it is not there."""
        try:
            found = self._path.stat()
        except OSError:
            return (0, 0, 0)
        return (found.st_mtime_ns, found.st_size, found.st_ino)

    def read(self) -> bytes:
        """See `PolicySource.read`."""
        return read_policy(self._path)

    def close(self) -> None:
        """See `PolicySource.close`."""


def source_of(where: str | Path) -> PolicySource:
    """What stands behind a path, or an address of Redis as `read_policy_address` takes it.

    Raises:
        ConfigError: an address is not one.
    """
    if isinstance(where, str) and is_address(where):
        return StoredPolicy(read_policy_address(where))
    return FilePolicy(where)


def load_policy(where: str | Path) -> Policy:
    """Read and validate the policy that a gateway starts with, of a file or of Redis.

    Where nobody answers and the address names a fallback, that file's is taken, and the log says so.

    Raises:
        ConfigError: an address is not one.
        PolicyError: it cannot be read or has faults; `faults` holds every one of them, in order of lines.
    """
    return begin_with(where)[0]


def begin_with(where: str | Path) -> tuple[Policy, str]:
    """As `load_policy`.

    Returns:
        The policy, and its document's digest, by which a watcher knows it again; none of a fallback's.
    """
    policy, digest, instead = _judge(where)
    if instead:
        log.error("%s", instead, extra={"action": "policy_load_error"})
    return policy, digest


def judge_policy(where: str | Path) -> tuple[Policy, str]:
    """As `load_policy`, and log nothing: for whoever only asks whether a gateway could start.

    Returns:
        The policy, and what is to be told where it is the fallback's; else an empty text.
    """
    policy, _, instead = _judge(where)
    return policy, instead


def read_only_from(where: str | Path) -> Policy:
    """The policy of this place and no other; arguments and errors are those of `load_policy`."""
    return _read(where)[0]


def _judge(where: str | Path) -> tuple[Policy, str, str]:
    try:
        return *_read(where), ""
    except PolicyAway as away:
        fallback = read_policy_address(str(where)).fallback
        if not fallback:
            raise
        policy = read_only_from(Path(fallback))
        return policy, "", f"{away}; begun with version {policy.version} of {fallback}"


def _read(where: str | Path) -> tuple[Policy, str]:
    source = source_of(where)
    try:
        document = source.read()
        return parse_policy(document, source=source.name), digest_of(document)
    finally:
        source.close()
