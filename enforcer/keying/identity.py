"""Identity that somebody trusted has set in a header, and the order in which ways to find a caller are tried."""

from __future__ import annotations

from enforcer.errors import ConfigError
from enforcer.keying.request import Identify, Request, header_name, only_value


def from_header(name: str) -> Identify:
    """Take the id from a header that a trusted proxy or an authenticating middleware has set.

    The returned function raises `InvalidField` if the header stands in the request more than once: then two hops
    disagree about who is calling.
    """
    wanted = header_name(name)

    def identify(request: Request) -> str | None:
        value = only_value(request, wanted)
        return _text(value) if value else None

    return identify


def first_of(*ways: Identify) -> Identify:
    """The first id that one of `ways` finds, in their order; None if none of them does.

    ``first_of(from_header("x-account"), from_address(...))`` is identity first, address only where there is none. What
    a way refuses (`InvalidField`) is refused as a whole: the next way is for requests without an identity, not for
    those with a broken one.
    """
    if not ways:
        raise ConfigError("first_of was given no way to identify a caller; allowed: one or more")

    def identify(request: Request) -> str | None:
        for way in ways:
            caller = way(request)
            if caller is not None:
                return caller
        return None

    return identify


def _text(value: bytes) -> str:
    """A header's value as text: UTF-8, which is what clients send, else Latin-1, which is what HTTP once meant."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")
