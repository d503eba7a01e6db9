"""One limit of a policy as validated data: a token bucket or a calendar quota, whose it is, and how it is applied.

Never resolves a request: `enforcer.core.resolution` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from enforcer.core.resolution import LIMIT_RATE

#: Longest caller or scope, in characters.
MAX_NAME_LENGTH = 256
#: Largest cost of one request, in tokens: what a decision's record can carry.
MAX_COST_TOKENS = 1_000_000_000
#: Largest amount of a quota: what the owner's 32-bit counts hold.
MAX_QUOTA_TOKENS = (1 << 32) - 1
#: Lowest and highest rate of a limit, tokens per second; the lowest is a token in 32 years. Below that the waits that
#: clients are told would be no numbers.
LEAST_RATE_PER_S = 1e-9
MOST_RATE_PER_S = 1e9
#: Part of a limit whose use is worth a warning, where nothing else is said.
SOFT_SHARE = 0.8

Printable = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME_LENGTH)]
LimitName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
Location = tuple[str | int, ...]


class PolicyModel(BaseModel):
    """What all parts of a policy have in common: unknown fields are faults, and nothing is changed or guessed."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Per(StrEnum):
    """The calendar period of a quota; weeks begin on Monday."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"


class LimitBy(StrEnum):
    """Whose bucket a limit is."""

    CALLER = "caller"
    """Each caller has one."""
    TENANT = "tenant"
    """All callers of one tenant share one."""
    SCOPE = "scope"
    """All callers share one for each scope."""
    EVERYONE = "everyone"
    """There is one."""


class LimitMode(StrEnum):
    """Whether a limit refuses."""

    ENFORCE = "enforce"
    SHADOW = "shadow"
    """It only says what it would refuse."""


class Amount(PolicyModel):
    """How much a limit allows: `rate_per_s` and `burst`, or `quota` and `per`, the latter in the calendar of `zone`."""

    rate_per_s: float | None = Field(default=None, ge=LEAST_RATE_PER_S, le=MOST_RATE_PER_S)
    burst: int | None = Field(default=None, ge=1, le=MAX_COST_TOKENS)
    quota: int | None = Field(default=None, ge=1, le=MAX_QUOTA_TOKENS)
    per: Per | None = Field(default=None, strict=False)
    zone: str = "UTC"

    @field_validator("zone")
    @classmethod
    def _known_zone(cls, zone: str) -> str:
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError("is no time zone that is known here; allowed: IANA names such as Europe/Berlin") from None
        return zone

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        fault = _amount_fault(self.model_dump())
        if fault is not None:
            raise ValueError(fault)
        return self

    @property
    def capacity(self) -> int:
        """The most that the limit ever holds."""
        return self.burst or self.quota or 0


class Limit(Amount):
    """A further limit of a plan, for each of its callers.

    `soft_share` is the used part from which on verdicts carry a warning; 0 for never. A limit in `percent` of less than
    100 is enforced for that part of the callers, always the same ones, and in shadow mode for the others.
    """

    soft_share: float = Field(default=SOFT_SHARE, ge=0, lt=1)
    mode: LimitMode = Field(default=LimitMode.ENFORCE, strict=False)
    percent: float = Field(default=100, ge=0, le=100)


class SharedLimit(Limit):
    """A limit of the whole policy.

    Attributes:
        by: whose bucket it is.
        scopes: in which scopes it applies; all if it is empty.
        overrides: other amounts for single callers, tenants or scopes, by their names.
    """

    by: LimitBy = Field(strict=False)
    scopes: list[Printable] = Field(default_factory=list)
    overrides: dict[Printable, Amount] = Field(default_factory=dict)


class Tenants(PolicyModel):
    """How a caller's tenant is found: what stands before the first `separator` in its name, unless it is named."""

    separator: Annotated[str, StringConstraints(min_length=1, max_length=8)] | None = None


def limit_faults(document: Mapping[str, Any]) -> Iterator[tuple[Location, str]]:
    """What is wrong between the limits of a policy document, each with the place where it stands."""
    shared = _mapping(document.get("limits"))
    for place, amount in _amounts(document):
        fault = _amount_fault(amount)
        if fault is not None:
            yield place, fault
    for name, limit in shared.items():
        if name == LIMIT_RATE:
            yield ("limits", name), f"is the name of every plan's own limit; allowed: any name but {LIMIT_RATE!r}"
        if isinstance(limit, Mapping) and limit.get("by") == LimitBy.EVERYONE and limit.get("overrides"):
            yield ("limits", name, "overrides"), "has nobody to be for: there is one bucket for everyone"
    for plan_name, plan in _mapping(document.get("plans")).items():
        for name in _mapping(plan.get("limits") if isinstance(plan, Mapping) else None):
            if name == LIMIT_RATE or name in shared:
                yield (
                    ("plans", plan_name, "limits", name),
                    "is the name of another limit; allowed: a name that no limit of the policy has, and not "
                    f"{LIMIT_RATE!r}",
                )


def _amount_fault(amount: Mapping[str, Any]) -> str | None:
    """What keeps an amount from being either a bucket or a quota."""
    has = {field: amount.get(field) is not None for field in ("rate_per_s", "burst", "quota", "per")}
    bucket, quota = has["rate_per_s"] or has["burst"], has["quota"] or has["per"]
    if bucket == quota:
        which = "both a bucket and a quota" if bucket else "neither a bucket nor a quota"
        return f"is {which}; allowed: rate_per_s with burst, or quota with per"
    pair = ("rate_per_s", "burst") if bucket else ("quota", "per")
    missing = [field for field in pair if not has[field]]
    return f"{missing[0]} is missing; allowed: {pair[0]} with {pair[1]}" if missing else None


def _amounts(document: Mapping[str, Any]) -> Iterator[tuple[Location, Mapping[str, Any]]]:
    """All limits and overrides that are mappings, each with its place."""
    found: list[tuple[Location, object]] = []
    for name, limit in _mapping(document.get("limits")).items():
        found.append((("limits", name), limit))
        overrides = _mapping(_mapping(limit).get("overrides"))
        found += [(("limits", name, "overrides", subject), amount) for subject, amount in overrides.items()]
    for plan_name, plan in _mapping(document.get("plans")).items():
        limits = _mapping(_mapping(plan).get("limits"))
        found += [(("plans", plan_name, "limits", name), limit) for name, limit in limits.items()]
    for place, amount in found:
        if isinstance(amount, Mapping):
            yield place, amount


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
