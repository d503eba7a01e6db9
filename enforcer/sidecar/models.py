"""What the sidecar takes and gives, as typed values; how a request is read, and what is wrong with one that is not.

Never decides: `enforcer.sidecar.app` asks the limiter.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from enforcer.core.headers import header_fields
from enforcer.core.rooms import named_room
from enforcer.core.sentences import explain_verdict, terms_fields
from enforcer.errors import InvalidField
from enforcer.limiting.arguments import invalid_cost, validate_name
from enforcer.limiting.limiter import Limiter
from enforcer.policies.limits import MAX_COST_TOKENS
from enforcer.types import Reason, Source, Verdict

MAX_CHECKS = 256
_FIELDS = ("caller", "scope", "cost")
_SOURCES = {source: source.name.lower() for source in Source}
_REASONS = {reason: reason.name.lower() for reason in Reason}

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Cost = Annotated[int, msgspec.Meta(ge=0, le=MAX_COST_TOKENS)]


class CheckRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One request to decide about. `cost` null or left out: what the policy says of the scope."""

    caller: Name
    scope: Name = "default"
    cost: Cost | None = None


class BatchRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Several at once; each is decided by itself."""

    checks: Annotated[list[CheckRequest], msgspec.Meta(min_length=1, max_length=MAX_CHECKS)]


class LimitAnswer(msgspec.Struct, frozen=True):
    """The limit that the verdict names, as sold: `rate_per_s` and `burst`, or of a quota `quota` and `per`.

    `plan` is the plan whose limit it is; the limit's own name where it is one of the whole policy. `per` is the
    calendar, as in ``day`` or ``month Europe/Berlin``.
    """

    name: str
    plan: str
    rate_per_s: float | msgspec.UnsetType = msgspec.UNSET
    burst: int | msgspec.UnsetType = msgspec.UNSET
    quota: int | msgspec.UnsetType = msgspec.UNSET
    per: str | msgspec.UnsetType = msgspec.UNSET


class CheckAnswer(msgspec.Struct, frozen=True):
    """The verdict. `retry_after_ms` is 0 if allowed, null where no wait helps; `detail` explains a refusal.

    `remaining` is what the caller may expect to have left of `limit`; `headers` are to be passed on with the response.
    """

    allowed: bool
    source: str
    reason: str
    remaining: int
    retry_after_ms: int | None
    request_id: str
    policy_version: int
    limit: LimitAnswer
    headers: dict[str, str]
    detail: str | None = None


class BatchAnswer(msgspec.Struct, frozen=True):
    """The verdicts, in the order of the checks."""

    verdicts: list[CheckAnswer]


class Health(msgspec.Struct, frozen=True):
    """``alive``."""

    status: str


class Readiness(msgspec.Struct, frozen=True):
    """``ready``, or ``degraded``: it decides, for some callers without their owner.

    `owners` says of each, by its address, whether it is ``there`` or ``away``.
    """

    status: str
    owners: dict[str, str]


class Problem(msgspec.Struct, frozen=True):
    """What is wrong with a request, as problem details (RFC 9457)."""

    title: str
    status: int
    detail: str
    field: str | None = None
    allowed: str | None = None
    type: str = "about:blank"


_check = msgspec.json.Decoder(CheckRequest)
_batch = msgspec.json.Decoder(BatchRequest)


def read_check(body: bytes) -> CheckRequest:
    """One check. Raises `InvalidField`, which names the field, the value and what is allowed."""
    try:
        return _check.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _fault(_json(body), "") from None


def read_batch(body: bytes) -> list[CheckRequest]:
    """All checks of a batch, each of them valid, so that no part of it is spent in vain. Raises `InvalidField`."""
    try:
        checks = _batch.decode(body).checks
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _batch_fault(_json(body)) from None
    for number, check in enumerate(checks):
        _validate(check.caller, check.scope, f"checks[{number}].")
    return checks


def answer_of(limiter: Limiter, verdict: Verdict) -> CheckAnswer:
    """The answer that states a verdict."""
    terms = verdict.basis.standing.terms
    plan, rooms = terms.plan, limiter.rooms(verdict)
    wait_ms, reason = verdict.retry_after_ms, verdict.reason
    detail = None
    if not verdict.allowed:
        detail = explain_verdict(verdict)
    return CheckAnswer(
        verdict.allowed,
        _SOURCES[verdict.source],
        _REASONS[reason],
        named_room(rooms, verdict).left,
        wait_ms if wait_ms >= 0 else None,
        limiter.request_id(verdict),
        terms.policy_version,
        LimitAnswer(terms.limit, plan.name, **terms_fields(terms)),
        {name.decode(): value.decode() for name, value in header_fields(verdict, rooms)},
        detail,
    )


def _json(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidField("body", body, f"JSON in UTF-8 ({error})") from None


def _batch_fault(found: Any) -> InvalidField:
    if not isinstance(found, dict) or set(found) != {"checks"}:
        return InvalidField("body", found, "a JSON object with the one field checks")
    checks = found["checks"]
    if not isinstance(checks, list) or not 1 <= len(checks) <= MAX_CHECKS:
        return InvalidField("checks", checks, f"a list of 1 to {MAX_CHECKS} checks")
    for number, check in enumerate(checks):
        try:
            msgspec.convert(check, CheckRequest)
        except msgspec.ValidationError:
            return _fault(check, f"checks[{number}].")
    return InvalidField("body", found, "a JSON object with the one field checks")


def _fault(found: Any, at: str) -> InvalidField:
    """What is wrong with a check that is JSON and was not taken."""
    if not isinstance(found, dict):
        return InvalidField(at.rstrip(".") or "body", found, "a JSON object with the fields caller, scope, cost")
    for name in found:
        if name not in _FIELDS:
            return InvalidField(f"{at}{name}", found[name], f"no such field; there are {', '.join(_FIELDS)}")
    try:
        _validate(found.get("caller"), found.get("scope", "default"), at)
    except InvalidField as fault:
        return fault
    return InvalidField(f"{at}cost", found.get("cost"), invalid_cost(found.get("cost")).allowed)


def _validate(caller: Any, scope: Any, at: str) -> None:
    validate_name(f"{at}caller", caller)
    validate_name(f"{at}scope", scope)
