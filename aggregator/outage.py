"""Says once that something is away, and once that it is back; and how long to wait between tries.

Never tries anything itself.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

_FIRST_DELAY_S = 0.1
_LONGEST_DELAY_S = 5.0


class Outage:
    """The state of one thing that others depend on. Used by one thread.

    Args:
        consequence: what its absence means meanwhile, a half sentence for the log.
        log: where to say it.
        now_s: a clock that never goes back.
    """

    def __init__(self, consequence: str, log: logging.Logger, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._consequence = consequence
        self._log = log
        self._now_s = now_s
        self._since_s: float | None = None
        self._said = ""
        self._tries = 0

    def failed(self, fault: Exception) -> float:
        """One more try failed; returns how many seconds to wait before the next."""
        if self._since_s is None:
            self._since_s = self._now_s()
        # The words before the colon name the kind of fault; what follows may differ each time.
        kind = str(fault).partition(": ")[0]
        if kind != self._said:
            self._said = kind
            self._log.warning("%s; %s", fault, self._consequence)
        delay_s = min(_FIRST_DELAY_S * 2.0 ** min(self._tries, 10), _LONGEST_DELAY_S)
        self._tries += 1
        return delay_s

    def worked(self, what: str) -> None:
        """A try succeeded. Says so if the one before had failed."""
        if self._since_s is not None:
            self._log.info("%s again after %.1f s; nothing was lost", what, self._now_s() - self._since_s)
        self._since_s, self._said, self._tries = None, "", 0
