"""Reads one call of Envoy: which checks it asks for. Refuses what is malformed before anything is charged.

Never decides, and never guesses: a call that is refused here names the field, the value and what is allowed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from enforcer.envoy.mapping import Charged, Mapper
from enforcer.envoy.stubs import DecodeError, RateLimitRequest
from enforcer.errors import InvalidField
from enforcer.limiting.arguments import validate_name
from enforcer.policies.limits import MAX_COST_TOKENS

MAX_DESCRIPTORS = 64
MAX_ENTRIES = 64


class Called(NamedTuple):
    """A call: for each descriptor who is charged, or None where no rule is for it; and the keys of each."""

    domain: str
    charged: list[Charged | None]
    keys: list[tuple[str, ...]]


def read_call(message: bytes, mapper: Mapper) -> Called:
    """Read a RateLimitRequest. Raises `InvalidField`; nothing is charged then."""
    try:
        request = RateLimitRequest.FromString(message)
    except DecodeError as error:
        raise InvalidField(
            "RateLimitRequest", f"({len(message):,} bytes)", f"a protobuf message with texts in UTF-8 ({error})"
        ) from None
    domain, descriptors = request.domain, request.descriptors
    validate_name("domain", domain)
    if not 0 < len(descriptors) <= MAX_DESCRIPTORS:
        raise InvalidField("descriptors", f"({len(descriptors):,} of them)", f"1 to {MAX_DESCRIPTORS}")
    hits = _hits("hits_addend", request.hits_addend)
    charged: list[Charged | None] = []
    keys: list[tuple[str, ...]] = []
    for number, descriptor in enumerate(descriptors):
        entries = _entries(number, descriptor)
        found = mapper.charged(domain, entries)
        keys.append(tuple(entries))
        charged.append(None if found is None else _checked(number, found, descriptor, hits))
    return Called(domain, charged, keys)


def _entries(number: int, descriptor: Any) -> dict[str, str]:
    entries = descriptor.entries
    if not 0 < len(entries) <= MAX_ENTRIES:
        raise InvalidField(f"descriptors[{number}].entries", f"({len(entries):,} of them)", f"1 to {MAX_ENTRIES}")
    found: dict[str, str] = {}
    for place, entry in enumerate(entries):
        key = entry.key
        validate_name(f"descriptors[{number}].entries[{place}].key", key)
        if key in found:
            raise InvalidField(f"descriptors[{number}].entries[{place}].key", key, "each key once in a descriptor")
        found[key] = entry.value
    return found


def _checked(number: int, charged: Charged, descriptor: Any, hits: int) -> Charged:
    caller, scope, _, in_shadow = charged
    validate_name(f"descriptors[{number}] caller", caller)
    validate_name(f"descriptors[{number}] scope", scope)
    if descriptor.HasField("hits_addend"):
        hits = _hits(f"descriptors[{number}].hits_addend", descriptor.hits_addend.value)
    elif not hits:
        return charged
    return Charged(caller, scope, hits, in_shadow)


def _hits(field: str, value: int) -> int:
    if value > MAX_COST_TOKENS:
        raise InvalidField(field, value, f"0 to {MAX_COST_TOKENS:,}")
    return value
