"""How the bounded buckets are called that callers share whom nobody named: ``anonymous/0417``. Pure."""

from __future__ import annotations

import re
from hashlib import blake2b

#: What a policy calls its anonymous caller, unless it says otherwise.
ANONYMOUS = "anonymous"
#: Most buckets that there can be, whoever makes the names.
MOST_BUCKETS = 65_536
#: So that the names of up to 10,000 buckets sort as their numbers do.
_LEAST_DIGITS = 4
_NUMBER = re.compile(rf"/[0-9]{{{_LEAST_DIGITS},{len(str(MOST_BUCKETS - 1))}}}")


def bucket_name(caller: str, number: int) -> str:
    """The name of one of the buckets, whose callers share it."""
    return f"{caller}/{number:0{_LEAST_DIGITS}d}"


def shared_name(anonymous: str, caller: str, buckets: int) -> str:
    """Under which name a caller that nobody named is charged: always the same one of so many."""
    if buckets == 1:
        return anonymous
    digest = blake2b(caller.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return bucket_name(anonymous, int.from_bytes(digest, "little") % buckets)


def is_shared(name: str, caller: str) -> bool:
    """Whether this is the name of a shared bucket: nobody can make up more of these than there are."""
    return name == caller or (name.startswith(caller) and _NUMBER.fullmatch(name, len(caller)) is not None)
