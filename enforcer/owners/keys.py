"""Names of the keys that the enforcer keeps at an owner; no other file spells one.

A bucket is one key, and a cluster places a key by what stands between its first ``{`` and the next ``}``. Callers are
free text, so the tag is never the caller itself: it is a digest, and no caller can break out of it or empty it.
"""

from __future__ import annotations

from hashlib import blake2b

#: Raised when the layout of the hash changes: buckets of an older layout are then left alone, and expire.
LAYOUT = 2
_PREFIX = f"tg{LAYOUT}:b:"
_READABLE = 48


def bucket_key(caller: str, limit: str) -> bytes:
    """The key of one bucket: ``tg2:b:{digest}:start of caller``.

    The digest is over the lengths and the texts, so (``a``, ``bc``) and (``ab``, ``c``) differ; 128 bits keep any two
    callers apart. The readable tail is for people at a console only.
    """
    who, which = caller.encode("utf-8", "surrogatepass"), limit.encode("utf-8", "surrogatepass")
    digest = blake2b(len(who).to_bytes(8, "little") + who + which, digest_size=16).hexdigest()
    tail = "".join(c if c.isascii() and (c.isalnum() or c in "._-@") else "_" for c in caller[:_READABLE])
    return f"{_PREFIX}{{{digest}}}:{tail}".encode("ascii")
