"""Everything the enforcer raises, split by what the caller can do about it.

EnforcerError
 ├─ InvalidField       the argument is wrong: correct the call (also a ValueError)
 ├─ PolicyError        the policy file is wrong: correct the file; lists every fault with its line
 │   └─ PolicyAway     where the policy is kept does not answer: recoverable, the last good one stays
 ├─ ConfigError        a setting or address is wrong: correct the configuration
 └─ OwnerUnavailable   the owner did not answer in time: recoverable, the limiter degrades by itself

Refusing a caller is a `Verdict`, never an exception; only functions under `limited` raise it, as `Refused`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_SHOWN_CHARACTERS = 80


class EnforcerError(Exception):
    """Base of every error that this package raises on purpose. Can be copied and sent to another process."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Made again from its message and attributes; Python would call the class with the message alone."""
        return _again, (type(self), self.args, self.__dict__)


def _again(kind: type[EnforcerError], args: tuple[Any, ...], attributes: dict[str, Any]) -> EnforcerError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class InvalidField(EnforcerError, ValueError):
    """One argument is not acceptable; the message names the field, the value and what is allowed."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        shown = repr(value)
        if len(shown) > _SHOWN_CHARACTERS:
            length = len(value) if isinstance(value, (str, bytes)) else len(shown)
            shown = f"{shown[:_SHOWN_CHARACTERS]}… ({length:,} long)"
        super().__init__(f"{field} is {shown}; allowed: {allowed}")
        self.field = field
        self.allowed = allowed


@dataclass(frozen=True, slots=True)
class PolicyFault:
    """One fault in a policy document: where it stands and what is wrong with it."""

    path: str
    line: int | None
    message: str

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line is not None else ""
        return f"{place}{self.path}: {self.message}"


class PolicyError(EnforcerError):
    """A policy document was refused; `faults` holds all of its faults, not only the first."""

    def __init__(self, source: str, faults: list[PolicyFault]) -> None:
        if len(faults) == 1 and faults[0].line is None:
            # The file as a whole: it was never read, so it has no faults to count.
            super().__init__(f"{source}: {faults[0].message}")
        else:
            lines = "".join(f"\n  {fault}" for fault in faults)
            super().__init__(
                f"{source}: {len(faults)} {'fault' if len(faults) == 1 else 'faults'} in the policy{lines}"
            )
        self.source = source
        self.faults = faults


class PolicyAway(PolicyError):
    """Where the policy is kept did not answer: it may be there all the same. Not a fault of the policy."""

    def __init__(self, source: str, cause: str, *, what: str = "cannot be read") -> None:
        super().__init__(source, [PolicyFault("(server)", None, f"{what}: {cause}")])
        self.cause = cause


class ConfigError(EnforcerError):
    """A setting is missing or wrong; the message names it, its value and what is allowed."""


class OwnerUnavailable(EnforcerError):
    """The owner did not answer: away, slow, or refusing. Never reaches a caller of `check`.

    `cause` is the message without the address, for whoever says that already.
    """

    def __init__(self, cause: str, *, where: str = "") -> None:
        super().__init__(f"the owner {where}: {cause}" if where else cause)
        self.cause = cause
