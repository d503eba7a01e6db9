"""What keying sees of a request: an ASGI scope, or a WSGI environ shown as one. Never reads a body."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from enforcer.errors import ConfigError, InvalidField

#: ``headers`` (pairs of bytes, names lowered) and ``client`` ((host, port), or None) of an ASGI scope.
Request: TypeAlias = Mapping[str, Any]

#: Finds the caller's id in a request; None where it has no identity: it shares the anonymous bucket.
Identify: TypeAlias = Callable[[Request], str | None]

#: Stands, as True, in a request whose server has joined headers of one name with commas, as WSGI servers and nginx do.
HEADERS_JOINED = "tallygate.headers_joined"
#: What WSGI keeps outside of ``HTTP_…``.
_BARE_HEADERS = ("CONTENT_TYPE", "CONTENT_LENGTH")


def of_environ(environ: Mapping[str, Any]) -> dict[str, Any]:
    """A WSGI environ as the request that an `Identify` takes: ``headers``, ``client``, ``method``, ``path``.

    A WSGI server has already joined headers of one name with commas, so that two identities in one request look like
    one with a comma in it: `from_header` and `from_api_key` refuse such a value. It has also folded ``X_Account``
    and ``X-Account`` into one name; servers of today drop the first.
    """
    headers = [(_named(name), _bytes(value)) for name, value in environ.items() if name[:5] == "HTTP_"]
    headers += [(_named(name), _bytes(environ[name])) for name in _BARE_HEADERS if environ.get(name)]
    host = environ.get("REMOTE_ADDR")
    path = f"{environ.get('SCRIPT_NAME', '')}{environ.get('PATH_INFO', '')}"
    return {
        "type": "http",
        "method": environ.get("REQUEST_METHOD", "GET"),
        "path": _bytes(path).decode("utf-8", "replace") or "/",
        "headers": headers,
        "client": (str(host), 0) if host else None,
        HEADERS_JOINED: True,
    }


def header_name(name: str) -> bytes:
    """A header's name as it stands in a request. Raises `ConfigError` where no header can have it."""
    lowered = name.strip().lower()
    if not lowered or not lowered.isascii() or not lowered.replace("-", "").replace("_", "").isalnum():
        raise ConfigError(f"header name is {name!r}; allowed: letters, digits, - and _")
    return lowered.encode("ascii")


def only_value(request: Request, wanted: bytes) -> bytes | None:
    """The value of a header that may stand in a request once. Raises `InvalidField` if it stands there twice."""
    found: bytes | None = None
    for name, value in request["headers"]:
        if name == wanted:
            if found is not None:
                raise _twice(wanted)
            found = value
    if found is not None and b"," in found and request.get(HEADERS_JOINED):
        raise _twice(wanted)
    return found


def header_lines(request: Request, wanted: bytes) -> list[str]:
    """Every line of a list header, in the order in which they came."""
    return [value.decode("latin-1") for name, value in request["headers"] if name == wanted]


def _twice(wanted: bytes) -> InvalidField:
    # Named without its values: it may carry a credential.
    return InvalidField(wanted.decode("ascii"), "(given more than once)", "exactly one such header")


@lru_cache(maxsize=1_024)
def _named(name: str) -> bytes:
    """A header's name as an ASGI scope has it; few are in use, so it is not made at every request."""
    return name.removeprefix("HTTP_").lower().replace("_", "-").encode("latin-1", "replace")


def _bytes(value: object) -> bytes:
    """WSGI hands bytes over as Latin-1 text."""
    return str(value).encode("latin-1", "replace")
