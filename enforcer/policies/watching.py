"""A policy file that is edited while gateways run: a valid new version is in force within two seconds.

An invalid one changes nothing: the last good policy stays, and the fault is logged and goes to the sink, once for each
content. It never writes the file.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

from enforcer.errors import EnforcerError, PolicyError
from enforcer.policies.loader import parse_policy, read_policy
from enforcer.policies.model import Policy

log = logging.getLogger("enforcer")

_EVERY_S = 1.0
_DIGEST_BYTES = 16


class Governed(Protocol):
    """What goes by the policy: a `Limiter`."""

    def apply(self, policy: Policy, *, source: str, digest: str) -> None:
        """Go by it from now on, or raise `PolicyError`."""
        ...

    def keep_policy(self, *, source: str, digest: str, faults: Sequence[str]) -> None:
        """Take note that a document was refused."""
        ...


class PolicyWatcher:
    """Looks at one file once a second, in a thread of its own."""

    def __init__(self, path: str | Path, governed: Governed, *, every_s: float = _EVERY_S) -> None:
        """Watch `path`. The first look reads it: it may have been edited since the policy in force was loaded."""
        self._path = Path(path)
        self._governed = governed
        self._every_s = every_s
        self._seen: tuple[int, int, int] | None = None
        self._digest = ""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="enforcer-policy", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more; returns once the last look has ended."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def look(self) -> None:
        """Take in the file if it was changed since the last look."""
        mark = self._mark()
        if mark == self._seen:
            return
        self._seen = mark
        source = str(self._path)
        digest = ""
        try:
            content = read_policy(self._path)
            digest = blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()
            if digest != self._digest:
                self._governed.apply(parse_policy(content, source=source), source=source, digest=digest)
        except PolicyError as error:
            self._governed.keep_policy(
                source=source, digest=digest, faults=[str(fault) for fault in error.faults] or [str(error)]
            )
        self._digest = digest

    def _mark(self) -> tuple[int, int, int]:
        """What changes when the file does; zeros while it is not there."""
        try:
            found = self._path.stat()
        except OSError:
            return (0, 0, 0)
        return (found.st_mtime_ns, found.st_size, found.st_ino)

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            try:
                self.look()
            except EnforcerError:
                return  # the limiter was closed meanwhile
            except Exception:  # a look that fails must not end the looking: the next edit may mend it
                log.exception("the policy file could not be looked at", extra={"action": "policy_load_error"})
