"""What replies of a server mean: an answer, a fault of one bucket, a bucket that moved, or a server that refuses.

Never does I/O.
"""

from __future__ import annotations

import re

from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterDownError,
    MovedError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from enforcer.messages import Answer, Ask, AskFault, Moved
from enforcer.owners.lua.frames import unpack_outcome

#: What a server says of itself, also from within a script. Anything else that a script meets is in its bucket.
_OF_THE_SERVER = re.compile(
    r"\b(BUSY|CLUSTERDOWN|LOADING|MASTERDOWN|MISCONF|NOAUTH|NOPERM|NOREPLICAS|OOM|READONLY)\b"
    r"|ACL failure in script|The user executing the script"
)
#: The client takes some of them for failures of the connection.
_REFUSALS = (ResponseError, AuthenticationError, AuthorizationError, BusyLoadingError)
#: Where in the interpreter's source a failure of TLS was met, and in which part of OpenSSL: for nobody.
_IN_OPENSSL = re.compile(r"^_ssl\.c:\d+: | \(_ssl\.c:\d+\)$|^\[[A-Z0-9]+: [A-Z0-9_]+\] ")
_FULL = "max number of clients reached"
_SAID_OF_A_BUCKET = ("WRONGTYPE", "SPOILED")
_IN_A_SCRIPT = ("user_script", "Error running script")


def is_moved(error: ResponseError) -> bool:
    """Whether a node of a cluster says that it does not hold the bucket, or that nobody does; others it may hold."""
    if isinstance(error, ClusterDownError):
        return "slot not served" in str(error)
    return isinstance(error, (MovedError, AskError, TryAgainError))


def is_of_the_bucket(error: ResponseError) -> bool:
    """Whether the error is of one bucket: what the script met in it, or where it is; not of the whole server."""
    if is_moved(error):
        return True
    said = str(error)
    # The client has classes for what servers say of themselves; older servers say it within the script's message.
    if type(error) is not ResponseError or _OF_THE_SERVER.search(said):
        return False
    return said.startswith(_SAID_OF_A_BUCKET) or any(words in said for words in _IN_A_SCRIPT)


def outcome(reply: object, ask: Ask) -> Answer | AskFault:
    """What the reply of the script to an ask means."""
    if isinstance(reply, bytes):
        try:
            return unpack_outcome(reply, ask)
        except ValueError as error:
            return AskFault(str(error))
    if isinstance(reply, ResponseError) and is_moved(reply):
        said = f"{type(reply).__name__}: {reply}"
        if not isinstance(reply, AskError):
            return Moved(said)
        host, port = reply.node_addr
        return Moved(said, host="" if host == "?" else host, port=port, arriving=not isinstance(reply, MovedError))
    return AskFault(str(reply) if isinstance(reply, ResponseError) else f"a reply of type {type(reply).__name__}")


def cause(error: Exception) -> str:
    """What went wrong, without the address: the client repeats it in its own errors, so the system's are taken."""
    said = "it refused" if isinstance(error, _REFUSALS) or _FULL in str(error) else "no answer"
    below = error.__cause__ or error.__context__
    if isinstance(error, RedisError) and isinstance(below, OSError):
        error = below
    words = _IN_OPENSSL.sub("", str(error))
    if words != str(error):
        said = "no TLS connection"
    return f"{said}: {type(error).__name__}: {words}"
