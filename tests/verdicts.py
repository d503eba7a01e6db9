"""Verdicts for tests of the log: with defaults, by the thousand, and as Hypothesis strategies."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from hypothesis import strategies as st

from enforcer.identity import CopyIdentity
from enforcer.messages import SettleCause, Settlement
from enforcer.sink import GrantIssued, GrantSettled
from enforcer.types import (
    NEVER_NS,
    Basis,
    Charge,
    Grant,
    Plan,
    Reason,
    Source,
    Standing,
    Terms,
    Verdict,
    outcome_code,
)
from stream.contract.block import DecisionBlock

IDENTITY = CopyIdentity("gw-017", 1_795_991_556_929 << 20 | 4711)
STANDARD = Plan("standard", 100.0, 200)


def basis(
    caller: str = "acct-1",
    scope: str = "GET /v1/items/{id}",
    *,
    limit: str = "per-second",
    plan: Plan = STANDARD,
    policy_version: int = 7,
    grant_id: int = 1_795_991_556_929_797,
    k: int = 4,
) -> Basis:
    """A basis on a standing of its own; name what the test is about."""
    return Basis(Standing(caller, Terms(limit, plan, policy_version)), scope, grant_id, k)


_BASIS = basis()


def verdict(
    seq: int,
    *,
    on: Basis = _BASIS,
    at_ns: int | None = None,
    code: int = 0,
    cost: int = 1,
    remaining: int = 49,
    retry_after_ms: int = 0,
) -> Verdict:
    """A verdict; allowed unless `code` carries a reason."""
    at = 10**15 + seq * 2_000_000 if at_ns is None else at_ns
    return Verdict(seq, at, on, code & 15 == 0, code, cost, remaining, ready_at_ns(at, retry_after_ms))


def ready_at_ns(at_ns: int, retry_after_ms: int) -> int:
    """What a verdict of that time carries for such a wait; 0 is an admission's, -1 is never."""
    if retry_after_ms <= 0:
        return NEVER_NS if retry_after_ms else 0
    return at_ns + retry_after_ms * 1_000_000


def verdicts(count: int, *, first_seq: int = 0) -> list[Verdict]:
    """A run of admitted decisions."""
    return [verdict(seq) for seq in range(first_seq, first_seq + count)]


def grant(caller: str = "acct-1", *, grant_id: int = 1_795_991_556_929_797) -> GrantIssued:
    """An issued grant."""
    return GrantIssued(caller, "per-second", 7, Grant(grant_id, 50, 4, grant_id, grant_id + 3_000_000), 150.0)


def settlement(caller: str = "acct-1", *, grant_id: int = 1_795_991_556_929_797) -> GrantSettled:
    """A final settlement."""
    return GrantSettled(caller, "per-second", "gw-017/4711", Settlement(grant_id, 50, True, SettleCause.ASK), grant_id)


def rows(block: DecisionBlock) -> list[tuple[object, ...]]:
    """The decisions of a block as tuples, in the form of `expected_rows`."""
    bases = block.bases
    found: list[tuple[object, ...]] = []
    for place in range(block.count):
        at = int(block.basis[place])
        plan = bases.plans[bases.plan[at]]
        found.append(
            (
                block.first_seq + place,
                int(block.at_us[place]),
                bases.callers[bases.caller[at]],
                bases.scopes[bases.scope[at]],
                bases.limits[bases.limit[at]],
                (plan.name, plan.rate_per_s, plan.burst),
                int(bases.policy_version[at]),
                int(bases.grant_id[at]),
                int(bases.k[at]),
                int(block.code[place]),
                int(block.cost[place]),
                int(block.remaining[place]),
                int(block.retry_after_ms[place]),
                *_more(
                    bases.plans[bases.plan[at]].per,
                    tuple((one.subject, one.limit, one.grant_id) for one in bases.also if one.basis == at),
                ),
            )
        )
    return found


def expected_rows(taken: Sequence[Verdict], *, clock_offset_ns: int) -> list[tuple[object, ...]]:
    """What must come back of verdicts that were encoded with this offset."""
    return [
        (
            v.seq,
            (v.at_ns + clock_offset_ns) // 1000,
            v.basis.caller,
            v.basis.scope,
            v.basis.limit,
            (v.basis.plan.name, v.basis.plan.rate_per_s, v.basis.plan.burst),
            v.basis.policy_version,
            v.basis.grant_id,
            v.basis.k,
            v.code,
            v.cost,
            v.remaining,
            v.retry_after_ms,
            *_more(v.basis.standing.terms.per, tuple((c.subject, c.limit, c.grant_id) for c in v.basis.also)),
        )
        for v in taken
    ]


def _more(per: str, also: tuple[tuple[str, str, int], ...]) -> tuple[object, ...]:
    """What only version 2 of a block has room for; nothing where it says nothing."""
    return (per, also) if per or also else ()


_NAMES = st.text(st.characters(codec="utf-8"), max_size=20)
_PLANS = st.builds(Plan, _NAMES, st.floats(0, 1e12, allow_nan=False, allow_infinity=False), st.integers(0, 2**63 - 1))
_TERMS = st.builds(
    Terms,
    limit=st.sampled_from(["per-second", "daily"]),
    plan=_PLANS,
    policy_version=st.integers(0, 2**32 - 1),
    per=st.sampled_from(["", "", "day", "month Europe/Berlin"]),
)
_GRANT_IDS = st.integers(0, 2**63 - 1)
_KS = st.integers(0, 2**32 - 1)
_ALSO = st.lists(st.builds(Charge, _NAMES, _NAMES, _GRANT_IDS), max_size=3).map(tuple)
_REFUSALS = [outcome_code(source, reason) for source in Source for reason in Reason if reason is not Reason.NONE]
_ADMISSIONS = [outcome_code(source, Reason.NONE) for source in Source]


def anew(one: Basis) -> Basis:
    """The same in objects of its own."""
    terms = Terms(*msgspec.structs.astuple(one.standing.terms))
    also = tuple(Charge(*msgspec.structs.astuple(charge)) for charge in one.also)
    return Basis(Standing(one.caller, terms), "".join(list(one.scope)), one.grant_id, one.k, also)


@st.composite
def runs(draw: st.DrawFn, *, max_size: int = 60) -> list[Verdict]:
    """A contiguous run of verdicts with every value that the log has room for."""
    count = draw(st.integers(0, max_size))
    first_seq = draw(st.integers(0, 2**62)) if count else 0
    terms = draw(st.lists(_TERMS, min_size=1, max_size=4))
    standings = draw(st.lists(st.builds(Standing, _NAMES, st.sampled_from(terms)), min_size=1, max_size=8))
    scopes = draw(st.lists(_NAMES, min_size=1, max_size=4))
    basis_of_run = st.builds(
        Basis, st.sampled_from(standings), st.sampled_from(scopes), _GRANT_IDS, _KS, st.just(()) | _ALSO
    )
    bases = draw(st.lists(basis_of_run, min_size=1, max_size=8))
    bases += [anew(one) for one in draw(st.lists(st.sampled_from(bases), max_size=4))]
    found = []
    for seq in range(first_seq, first_seq + count):
        code = draw(st.sampled_from([*_ADMISSIONS, *_REFUSALS]))
        at_ns = draw(st.integers(0, 4 * 10**18))
        found.append(
            Verdict(
                seq,
                at_ns,
                draw(st.sampled_from(bases)),
                code & 15 == 0,
                code,
                draw(st.one_of(st.just(1), st.integers(0, 2**32 - 1))),
                draw(st.one_of(st.integers(0, 200), st.integers(-(2**63), 2**63 - 1))),
                0 if code & 15 == 0 else ready_at_ns(at_ns, draw(st.integers(-1, 2**31 - 1))),
            )
        )
    return found
