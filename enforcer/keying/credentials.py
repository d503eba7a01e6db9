"""An id made of a credential: a keyed hash. The credential itself leaves this module in no value and no message."""

from __future__ import annotations

from hashlib import blake2b

from enforcer.errors import ConfigError, InvalidField
from enforcer.keying.request import Identify, Request, header_name, only_value

_DIGEST_BYTES = 10
_SUFFIX_CHARACTERS = 4
#: A credential shorter than this gives away too much of itself by its end.
_SUFFIX_FROM_CHARACTERS = 16
_LEAST_SECRET_BYTES = 16
_MOST_SECRET_BYTES = 64
_MOST_CREDENTIAL_BYTES = 8_192


def secret_key(secret: bytes | str) -> bytes:
    """What keys a hash, as bytes. Raises `ConfigError` if it is too short or too long; never shows it."""
    key = secret.encode("utf-8") if isinstance(secret, str) else secret
    if not _LEAST_SECRET_BYTES <= len(key) <= _MOST_SECRET_BYTES:
        raise ConfigError(f"secret is {len(key)} bytes long; allowed: {_LEAST_SECRET_BYTES} to {_MOST_SECRET_BYTES}")
    return key


def from_api_key(header: str, secret: bytes | str) -> Identify:
    """Make an id of an API key: ``key-<keyed hash>``, with the key's last four characters for people to recognise.

    It knows no key from another: each that is made up gets an id, and so a bucket, of its own. Where nothing before it
    has verified the key, set ``unnamed: anonymous`` in the policy and name the ids of the real ones under ``callers``.

    Args:
        header: where the key stands, such as ``authorization`` (a ``Bearer`` before it is left out) or ``x-api-key``.
        secret: keys the hash, 16 to 64 bytes. Another secret makes other ids: keep it as long as the record.

    Raises:
        ConfigError: the secret is too short or too long.
    """
    wanted = header_name(header)
    key = secret_key(secret)

    def identify(request: Request) -> str | None:
        value = only_value(request, wanted)
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
