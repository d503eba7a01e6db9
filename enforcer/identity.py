"""Who a copy is, and the request id that names one of its decisions.

Never reads the clock or the process table by itself: `new_identity` is given both.
"""

from __future__ import annotations

import re

import msgspec

from enforcer.errors import InvalidField

_COPY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
#: Bits of an epoch that hold the process id; the rest are the unix milliseconds of its start.
_PID_BITS = 20


class CopyIdentity(msgspec.Struct, frozen=True):
    """One enforcer process in one life: (copy_id, epoch) is never used by two of them."""

    copy_id: str
    epoch: int


def new_identity(copy_id: str, *, unix_ms: int, pid: int) -> CopyIdentity:
    """Name a process that starts now.

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
