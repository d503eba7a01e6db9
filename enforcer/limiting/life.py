"""Whether a limiter may decide: until it is closed, and only in the process that built it. Closes nothing itself."""

from __future__ import annotations

import os

from enforcer.errors import ConfigError, EnforcerError


class Life:
    """Of one limiter; it changes under that one's lock."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._is_forked = False
        self.is_over = False

    def end(self) -> None:
        """The limiter is closed."""
        self.is_over = True

    def end_in_fork(self) -> None:
        """This is another process than the limiter's own."""
        self.is_over = self._is_forked = True

    def require(self) -> None:
        """Do nothing while it lives.

        Raises:
            ConfigError: this process was forked from the one in which the limiter was built.
            EnforcerError: it is closed.
        """
        if self._is_forked:
            raise ConfigError(
                f"the limiter was built in process {self._pid}, and process {os.getpid()} was forked from it: it would "
                "spend the other's tokens; allowed: PerProcess(build), which builds one in the process that serves"
            )
        if self.is_over:
            raise EnforcerError("this limiter is closed")
