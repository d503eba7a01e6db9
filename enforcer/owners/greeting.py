"""Whether a server is new enough for the script, asked once per connection. Messages never hold a credential.

Every Redis since 6.0, and every Valkey, answers HELLO; so what does not know it is older, and says its version in INFO.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from redis.exceptions import NoPermissionError, ResponseError

#: Older ones forbid a script to write after it has read the clock, or know HSET with one field only.
OLDEST = (5, 0)
_UNKNOWN = re.compile(r"unknown command", re.IGNORECASE)
_VERSION = re.compile(rb"^redis_version:\s*(\d+)\.(\d+)(\S*)", re.MULTILINE)


class TooOld(ResponseError):
    """The server's version is below `OLDEST`, or it does not say which it is."""


def greet(put: Callable[..., Any]) -> None:
    """Put as many questions as are needed to know that the server is new enough.

    Args:
        put: puts one command to the server; the reply as it came, or the error in its place.

    Raises:
        TooOld: it is not.
        ResponseError: it refuses all commands, such as while it loads.
    """
    hello = put(b"HELLO", b"2")
    if not isinstance(hello, ResponseError) or isinstance(hello, NoPermissionError):
        # Permissions came with 6.0, where HELLO needs one.
        return
    if not _UNKNOWN.search(str(hello)):
        raise hello
    info = put(b"INFO", b"server")
    found = _VERSION.search(info) if isinstance(info, bytes) else None
    if found is None:
        raise TooOld(f"it is no Redis or Valkey that says its version; allowed: Redis from {_shown(OLDEST)}, Valkey")
    if (int(found[1]), int(found[2])) < OLDEST:
        version = b"%b.%b%b" % found.groups()
        raise TooOld(f"it is Redis {version.decode('ascii', 'replace')}; allowed: from {_shown(OLDEST)}, Valkey")


def _shown(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
