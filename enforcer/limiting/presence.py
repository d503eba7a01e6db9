"""Whether one owner is there, as far as this copy has heard, and the facts about that: one at each end.

It asks nobody. Everything is called with the limiter's lock held.
"""

from __future__ import annotations

import logging

from enforcer.limiting.reporting import Reporting

log = logging.getLogger("enforcer")

#: A silence is told of from this length on: a copy whose threads compute is late by itself now and then.
_LONG_NS = 500_000_000
_SILENT = "no answer yet: a request waited its whole timeout"
_BACK = "the owner answers again"
_REPLACED = "it is no owner any more"


class Presence:
    """Of one owner.

    Attributes:
        alone: whether decisions are made without this owner.
        is_silent: whether that is so only because a request waited in vain; the asker does not know more by now.
    """

    def __init__(self, reporting: Reporting, *, name: str) -> None:
        self.alone = False
        self.is_silent = False
        self._reporting = reporting
        self._name = name
        self._is_told = False
        self._heard_ns = self._since_ns = -1

    def is_away(self, now_ns: int) -> bool:
        """Whether to decide alone; that it has been so for long is told here, for the asker itself is stuck then."""
        if self.is_silent and now_ns - self._since_ns >= _LONG_NS:
            self._tell(entered=True, cause=_SILENT)
        return self.alone

    def overdue(self, since_ns: int) -> None:
        """A request has waited since then, for its whole timeout: without a word meanwhile, it is the last to wait."""
        if not self.alone and self._heard_ns < since_ns:
            self.alone = self.is_silent = True
            self._since_ns = since_ns

    def heard(self, now_ns: int) -> None:
        """The owner has answered, or proved that it would."""
        self._heard_ns = now_ns
        self.alone = self.is_silent = False
        self._tell(entered=False, cause=_BACK)

    def lost(self, cause: str) -> None:
        """It did not answer, and is not asked until it has passed a probe."""
        self.alone, self.is_silent = True, False
        self._tell(entered=True, cause=cause)

    def replaced(self) -> None:
        """It holds no bucket any more, so nobody is decided without it."""
        self.alone = self.is_silent = False
        self._tell(entered=False, cause=_REPLACED)

    def _tell(self, *, entered: bool, cause: str) -> None:
        if entered == self._is_told:
            return
        self._is_told = entered
        self._reporting.degraded(self._name, entered=entered, cause=cause)
        if entered:
            log.warning("deciding without the owner %s: %s", self._name, cause, extra={"action": "degrade_entered"})
        else:
            log.warning("%s: %s", self._name, cause, extra={"action": "degrade_left"})
