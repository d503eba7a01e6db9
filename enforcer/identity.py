"""Who a copy is, and the request id that names one of its decisions.

Never reads the clock or the process table by itself: it is given both.
"""

from __future__ import annotations

import re
import threading

import msgspec

from enforcer.errors import InvalidField
from enforcer.forking import tell_of_forks

_COPY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
#: Bits of an epoch that hold the process id; the rest are the unix milliseconds of its start.
_PID_BITS = 20


class CopyIdentity(msgspec.Struct, frozen=True):
    """One enforcer process in one life: (copy_id, epoch) is never used by two of them."""

    copy_id: str
    epoch: int


class Starts:
    """Names the limiters of one process: no two of them get the same epoch, however quickly they are built.

    A fork goes on from its parent's, with a process id of its own.
    """

    def __init__(self) -> None:
        self._last_ms = 0
        self._lock = threading.Lock()
        tell_of_forks(self)

    def new_identity(self, copy_id: str, *, unix_ms: int, pid: int) -> CopyIdentity:
        """See `new_identity`; the epoch says a later millisecond if this one was given, or the clock was put back."""
        identity = new_identity(copy_id, unix_ms=unix_ms, pid=pid)
        with self._lock:
            start_ms = self._last_ms = max(unix_ms, self._last_ms + 1)
        return identity if start_ms == unix_ms else new_identity(copy_id, unix_ms=start_ms, pid=pid)

    def after_fork(self) -> None:
        """See `Forkable`: another thread may have been naming one."""
        self._lock = threading.Lock()


def new_identity(copy_id: str, *, unix_ms: int, pid: int) -> CopyIdentity:
    """Name a limiter that starts now. Given the same twice it gives the same: a process names its own by `Starts`.

    Args:
        copy_id: 1 to 63 characters of ``A-Z a-z 0-9 . _ -``, a stable name of this process slot.
        unix_ms: wall time of the start, milliseconds.
        pid: process id; keeps two forks of one parent apart that start in the same millisecond.

    Raises:
        InvalidField: ``copy_id`` has another form.
    """
    if _COPY_ID.match(copy_id) is None:
        raise InvalidField("copy_id", copy_id, "1 to 63 characters of A-Z a-z 0-9 . _ -, the first a letter or digit")
    return CopyIdentity(copy_id, (unix_ms << _PID_BITS) | (pid & ((1 << _PID_BITS) - 1)))


def format_request_id(identity: CopyIdentity, seq: int) -> str:
    """The id that a refused client reads in its body, and that support can look up."""
    return f"{identity.copy_id}-{_base36(identity.epoch)}-{_base36(seq)}"


def parse_request_id(text: str) -> tuple[CopyIdentity, int]:
    """Read back what `format_request_id` wrote.

    Raises:
        InvalidField: the text is not a request id of ours.
    """
    parts = text.strip().rsplit("-", 2)
    allowed = "a request id as it stands in a refusal's body, such as gw-017-kf12oi3s-1x"
    if len(parts) != 3 or _COPY_ID.match(parts[0]) is None:
        raise InvalidField("request_id", text, allowed)
    try:
        epoch, seq = int(parts[1], 36), int(parts[2], 36)
    except ValueError:
        raise InvalidField("request_id", text, allowed) from None
    if not (0 <= epoch < 1 << 64 and 0 <= seq < 1 << 64):
        raise InvalidField("request_id", text, allowed)
    return CopyIdentity(parts[0], epoch), seq


def _base36(number: int) -> str:
    digits = ""
    while True:
        number, rest = divmod(number, 36)
        digits = _DIGITS[rest] + digits
        if number == 0:
            return digits
