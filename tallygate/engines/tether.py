"""Become a child that dies with its parent: ask the kernel for a signal at the parent's death, then exec the command.

Run as ``python -I -S tether.py PARENT_PID SIGNAL COMMAND...``, in a fresh interpreter, so that nothing runs between
fork and exec in a process that may have threads. Starts nothing else, and imports only the standard library.
"""

from __future__ import annotations

import ctypes
import os
import sys

_PR_SET_PDEATHSIG = 1


def bind_to_parent(parent_pid: int, signal_number: int) -> None:
    """Ask for ``signal_number`` at the parent's death; end at once if it is dead already. A no-op off Linux."""
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0):
        sys.exit(f"tether: prctl(PR_SET_PDEATHSIG) failed: {os.strerror(ctypes.get_errno())}")
    # The parent may have died between the fork and the call above; then no signal will ever come.
    if os.getppid() != parent_pid:
        sys.exit(f"tether: parent {parent_pid} is gone")


def main(argv: list[str]) -> None:
    """Bind, then replace this process by the command; returns only by an error."""
    parent_pid, signal_number, command = int(argv[1]), int(argv[2]), argv[3:]
    bind_to_parent(parent_pid, signal_number)
    try:
        os.execvp(command[0], command)  # noqa: S606  the command comes from this package, never from a shell
    except OSError as error:
        sys.exit(f"tether: cannot run {command[0]}: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv)
