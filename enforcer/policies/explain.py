"""The command that explains what a policy does with one request: which limits, from where, at what cost, failing how.

Asks no owner and changes nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import msgspec

from enforcer.errors import InvalidField
from enforcer.limiting.arguments import validate_name
from enforcer.policies.explanation import Explanation, LimitSays, explain_policy
from enforcer.policies.limits import MAX_COST_TOKENS
from enforcer.policies.sources import read_only_from


def explain_request(where: str, *, caller: str, scope: str, cost: str | None, tenant: str | None, as_json: bool) -> int:
    """``policy explain POLICY``: prints the explanation; returns 0.

    Args:
        where: a policy file, or an address as ``TALLYGATE_POLICY`` takes it.
        caller: whose request, 1 to 256 printable characters.
        scope: a scope's name, or a request such as ``GET /items/7``; likewise.
        cost: a whole number; None for the scope's own.
        tenant: whose the caller is to be taken for, likewise; None for what the policy says.
        as_json: one JSON object instead of text.

    Raises:
        InvalidField: an argument is not of that form.
        ConfigError, PolicyError: there is no such policy, or it has faults.
    """
    validate_name("--caller", caller)
    validate_name("--scope", scope)
    if tenant is not None:
        validate_name("--tenant", tenant)
    found = explain_policy(read_only_from(where), caller=caller, scope=scope, cost=_cost(cost), tenant=tenant)
    text = msgspec.json.format(msgspec.json.encode(found)).decode() if as_json else "\n".join(lines_of(found))
    sys.stdout.write(f"{text}\n")
    return 0


def lines_of(found: Explanation) -> Iterator[str]:
    """The explanation for people, line by line."""
    yield f"policy     version {found.policy_version}"
    charged = "" if found.charged_as == found.caller else f", charged as {found.charged_as!r}: unnamed is anonymous"
    yield f"caller     {found.caller!r}{charged}"
    yield f"tenant     {'none' if found.tenant is None else f'{found.tenant!r} ({found.tenant_source})'}"
    yield f"plan       {found.plan} ({found.plan_source})"
    yield f"scope      {found.scope} ({found.scope_source})"
    if found.literally is not None:
        yield f"literally  {found.literally}"
    yield f"cost       {found.cost:,} ({found.cost_source}){': always admitted' if found.cost == 0 else ''}"
    yield f"fail mode  {found.fail_mode} ({found.fail_mode_source})"
    for title, enforced in (("all of these must admit:", True), ("these only say what they would refuse:", False)):
        said = [limit for limit in found.limits if limit.enforced is enforced]
        if said:
            yield f"\n{title}"
            for limit in said:
                yield from _limit_lines(limit, found.cost)
    if found.left_out:
        yield "\nthese do not apply:"
        for left_out in found.left_out:
            yield f"  {left_out.name}: {left_out.why}"


def _limit_lines(limit: LimitSays, cost: int) -> Iterator[str]:
    if limit.quota is not None:
        amount = f"{limit.quota:,} per {limit.per}, {limit.zone}"
    else:
        amount = f"{limit.rate_per_s:g}/s, burst {limit.burst:,}"
    yield f"  {limit.name}: {amount}; bucket of {limit.bucket!r}; from {limit.source}"
    if limit.stage is not None:
        yield f"    {limit.stage}"
    if limit.never:
        yield f"    {'refuses' if limit.enforced else 'would refuse'} this request for ever: it costs {cost:,}"
    if limit.warns_at is not None:
        yield f"    warns at {limit.warns_at:,} left"
    if limit.enforced:
        yield f"    without the owner: {limit.without_owner}"


def _cost(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 16 and int(text) <= MAX_COST_TOKENS):
        raise InvalidField("--cost", text, f"a whole number from 0 to {MAX_COST_TOKENS:,}")
    return int(text)
