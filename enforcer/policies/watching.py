"""A policy that is edited while gateways run: a valid new version is in force within two seconds.

Reading takes CPU: one of 20,000 named callers is in force within four seconds beside a busy gateway.

An invalid one changes nothing: the last good policy stays, and the fault is logged and goes to the sink, once for each
content. So it does while nobody answers where the policy is kept. It never writes a policy.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Protocol

from enforcer.errors import EnforcerError, PolicyAway, PolicyError
from enforcer.policies.loader import parse_policy
from enforcer.policies.model import Policy
from enforcer.policies.sources import PolicySource
from enforcer.policies.stored import digest_of

log = logging.getLogger("enforcer")

_EVERY_S = 1.0
#: Looks in a row without an answer before it is told: one alone may be a hiccup.
_TOLD_AT = 2


class Governed(Protocol):
    """What goes by the policy: a `Limiter`."""

    def apply(self, policy: Policy, *, source: str, digest: str) -> None:
        """Go by it from now on, or raise `PolicyError`."""
        ...

    def keep_policy(self, *, source: str, digest: str, faults: Sequence[str]) -> None:
        """Take note that a document was refused."""
        ...


class PolicyWatcher:
    """Looks at one source once a second, in a thread of its own."""

    def __init__(
        self, source: PolicySource, governed: Governed, *, digest: str = "", every_s: float = _EVERY_S
    ) -> None:
        """Watch `source`. The first look reads it: it may have been edited since the policy in force was loaded.

        `digest`: of that one's document, which is not taken in again.
        """
        self._source = source
        self._governed = governed
        self._every_s = every_s
        self._seen: object = None
        self._digest = digest
        self._unanswered = 0
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
        self._source.close()

    def look(self) -> None:
        """Take in the policy if it was changed since the last look."""
        try:
            mark = self._source.mark()
            if mark != self._seen:
                self._take_in()
                self._seen = mark
        except PolicyAway as away:
            self._unanswered += 1
            if self._unanswered == _TOLD_AT:
                self._governed.keep_policy(source=self._source.name, digest="", faults=[str(away.faults[0])])
            return
        if self._unanswered >= _TOLD_AT:
            log.warning("the policy can be read again: %s", self._source.name, extra={"action": "policy_read_again"})
        self._unanswered = 0

    def _take_in(self) -> None:
        source = self._source.name
        digest = ""
        try:
            content = self._source.read()
            digest = digest_of(content)
            if digest != self._digest:
                self._governed.apply(parse_policy(content, source=source), source=source, digest=digest)
        except PolicyAway:
            raise
        except PolicyError as error:
            self._governed.keep_policy(
                source=source, digest=digest, faults=[str(fault) for fault in error.faults] or [str(error)]
            )
        except EnforcerError:
            raise
        except Exception as error:  # a document that nobody foresaw changes nothing either, and is told of all the same
            log.exception("the policy could not be read", extra={"action": "policy_load_error"})
            self._governed.keep_policy(source=source, digest=digest, faults=[f"cannot be read: {error!r}"])
        self._digest = digest

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            try:
                self.look()
            except EnforcerError:
                return  # the limiter was closed meanwhile
            except Exception:  # a look that fails must not end the looking: the next edit may mend it
                log.exception("the policy could not be looked at", extra={"action": "policy_load_error"})
