"""Commands whose answer is what they are for: one that cannot be written is a failure of its own, never a verdict.

Judges no answer. Faults of files that a command was told to write are that command's own.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress

#: As the commands return it where the database could not be asked: nobody knows the answer.
NOT_ANSWERED = 3
_PIPE_ENDED = (errno.EPIPE, errno.ECONNRESET)


def answered(command: str, run: Callable[[], int]) -> int:
    """Run a command; its exit code, or 3 and a line on standard error if standard output does not take its answer."""
    if sys.stdout is None:
        # Closed by who called. Whoever writes to it all the same is told, and no file or socket comes in its place.
        sys.stdout = open(os.devnull)  # noqa: SIM115 - for as long as the process lives
    try:
        code = run()
        sys.stdout.flush()
    except OSError as fault:
        if fault.filename is not None:
            raise
        why = "its reader is gone" if fault.errno in _PIPE_ENDED else fault.strerror or "it is closed"
        sys.stderr.write(f"tallygate {command}: the answer could not be written to standard output: {why}\n")
        _forget_the_rest()
        return NOT_ANSWERED
    return code


def _forget_the_rest() -> None:
    """What is still buffered goes nowhere: Python would try again at its end, and take that for the exit code."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
