"""What a request may be called and cost: whoever takes requests from outside asks here, so that all say the same."""

from __future__ import annotations

from enforcer.errors import InvalidField
from enforcer.policies.limits import MAX_COST_TOKENS, MAX_NAME_LENGTH


def validate_name(field: str, value: object) -> None:
    """Raise `InvalidField` unless a caller or a scope can be called so: text of 1 to 256 printable characters."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME_LENGTH or not value.isprintable():
        raise InvalidField(field, value, f"text of 1 to {MAX_NAME_LENGTH} printable characters")


def validate_request(caller: object, scope: object, cost: object = None) -> None:
    """Raise `InvalidField` unless a request can say so; without a cost, the policy says it."""
    if cost is not None:
        validate_cost(cost)
    validate_name("caller", caller)
    validate_name("scope", scope)


def validate_cost(value: object) -> None:
    """Raise `InvalidField` unless a request can cost so much."""
    if type(value) is not int or not 0 <= value <= MAX_COST_TOKENS:
        raise invalid_cost(value)


def invalid_cost(cost: object) -> InvalidField:
    """What to raise for a cost that is none."""
    return InvalidField("cost", cost, f"a whole number from 0 to {MAX_COST_TOKENS:,}")
