"""Verdicts for tests of the log: with defaults, by the thousand, and as Hypothesis strategies."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from enforcer.identity import CopyIdentity
from enforcer.sink import GrantIssued, GrantSettled
from enforcer.types import Basis, Grant, Plan, Reason, SettleCause, Settlement, Source, Verdict, outcome_code
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
    slot: int = 0,
) -> Basis:
    """A basis; name what the test is about."""
    return Basis(caller, scope, limit, plan, policy_version, grant_id, k, slot)


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
    return Verdict(seq, at, on, code & 15 == 0, code, cost, remaining, retry_after_ms)


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
        )
        for v in taken
    ]


_NAMES = st.text(st.characters(codec="utf-8"), max_size=20)
_PLANS = st.builds(Plan, _NAMES, st.floats(0, 1e12, allow_nan=False, allow_infinity=False), st.integers(0, 2**63 - 1))
_BASES = st.builds(
    Basis,
    caller=_NAMES,
    scope=_NAMES,
    limit=st.sampled_from(["per-second", "daily"]),
    plan=_PLANS,
    policy_version=st.integers(0, 2**32 - 1),
    grant_id=st.integers(0, 2**63 - 1),
    k=st.integers(0, 2**32 - 1),
    slot=st.integers(0, 2**62),
)
_REFUSALS = [outcome_code(source, reason) for source in Source for reason in Reason if reason is not Reason.NONE]
_ADMISSIONS = [outcome_code(source, Reason.NONE) for source in Source]


@st.composite
def runs(draw: st.DrawFn, *, max_size: int = 60) -> list[Verdict]:
    """A contiguous run of verdicts with every value that the log has room for."""
    count = draw(st.integers(0, max_size))
    first_seq = draw(st.integers(0, 2**62)) if count else 0
    bases = draw(st.lists(_BASES, min_size=1, max_size=8))
    found = []
    for seq in range(first_seq, first_seq + count):
        code = draw(st.sampled_from([*_ADMISSIONS, *_REFUSALS]))
        found.append(
            Verdict(
                seq,
                draw(st.integers(0, 4 * 10**18)),
                draw(st.sampled_from(bases)),
                code & 15 == 0,
                code,
                draw(st.one_of(st.just(1), st.integers(0, 2**32 - 1))),
                draw(st.one_of(st.integers(0, 200), st.integers(-(2**63), 2**63 - 1))),
                0 if code & 15 == 0 else draw(st.integers(-1, 2**31 - 1)),
            )
        )
    return found
