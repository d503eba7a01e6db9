"""Who is calling: ways to find the caller's id in a request.

A credential is never a caller id; what is made of one here cannot be turned back. Never reads the policy.

A request that names the policy's anonymous caller as its own is counted in the bucket which all requests without an
identity share: that gives it nothing which it would not have had by naming nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, TypeAlias

from enforcer.errors import ConfigError, InvalidField

#: Finds the caller's id in an ASGI scope; None where the request has no identity: it shares the anonymous bucket.
Identify: TypeAlias = Callable[[Mapping[str, Any]], str | None]

_DIGEST_BYTES = 10
_SUFFIX_CHARACTERS = 4
#: A credential shorter than this gives away too much of itself by its end.
_SUFFIX_FROM_CHARACTERS = 16
_LEAST_SECRET_BYTES = 16
_MOST_CREDENTIAL_BYTES = 8_192


def from_header(name: str) -> Identify:
    """Take the id from a header that a trusted proxy or an authenticating middleware has set.

    The returned function raises `InvalidField` if the header stands in the request more than once: then two hops
    disagree about who is calling.
    """
    wanted = _header_name(name)

    def identify(scope: Mapping[str, Any]) -> str | None:
        value = _only_value(scope, wanted)
        return _text(value) if value else None

    return identify


def from_api_key(header: str, secret: bytes | str) -> Identify:
    """Make an id of an API key: ``key-<keyed hash>``, with the key's last four characters for people to recognise.

    Args:
        header: where the key stands, such as ``authorization`` (a ``Bearer`` before it is left out) or ``x-api-key``.
        secret: keys the hash, 16 to 64 bytes. Another secret makes other ids: keep it as long as the record.

    Raises:
        ConfigError: the secret is too short or too long.
    """
    wanted = _header_name(header)
    key = secret.encode("utf-8") if isinstance(secret, str) else secret
    if not _LEAST_SECRET_BYTES <= len(key) <= 64:
        raise ConfigError(f"secret is {len(key)} bytes long; allowed: {_LEAST_SECRET_BYTES} to 64")

    def identify(scope: Mapping[str, Any]) -> str | None:
        value = _only_value(scope, wanted)
        if value is None:
            return None
        credential = value[7:].strip() if value[:7].lower() == b"bearer " else value.strip()
        if not credential:
            return None
        if len(credential) > _MOST_CREDENTIAL_BYTES:
            raise InvalidField(header, f"({len(credential):,} bytes)", f"at most {_MOST_CREDENTIAL_BYTES:,} bytes")
        digest = blake2b(credential, digest_size=_DIGEST_BYTES, key=key).hexdigest()
        tail = credential[-_SUFFIX_CHARACTERS:].decode("latin-1")
        shows_tail = len(credential) >= _SUFFIX_FROM_CHARACTERS and tail.isascii() and tail.isalnum()
        return f"key-{digest}-{tail}" if shows_tail else f"key-{digest}"

    return identify


def _text(value: bytes) -> str:
    """A header's value as text: UTF-8, which is what clients send, else Latin-1, which is what HTTP once meant."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _header_name(name: str) -> bytes:
    lowered = name.strip().lower()
    if not lowered or not lowered.isascii() or not lowered.replace("-", "").replace("_", "").isalnum():
        raise ConfigError(f"header name is {name!r}; allowed: letters, digits, - and _")
    return lowered.encode("ascii")


def _only_value(scope: Mapping[str, Any], wanted: bytes) -> bytes | None:
    found: bytes | None = None
    for name, value in scope["headers"]:
        if name == wanted:
            if found is not None:
                # Named without its values: it may carry a credential.
                raise InvalidField(wanted.decode("ascii"), "(given more than once)", "exactly one such header")
            found = value
    return found
