"""The traffic that the wire benchmark encodes: what a limiter hands to its sink, made without one."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from enforcer.types import Basis, Plan, Reason, Source, Standing, Terms, Verdict, outcome_code

_PLANS = (Plan("free", 5.0, 10), Plan("standard", 100.0, 200), Plan("large", 20_000.0, 40_000))
_TERMS = [Terms("per-second", plan, 7) for plan in _PLANS]
_GRANT_LIFE_NS = 3_000_000_000
#: A limiter forgets a caller that has been idle for so long; what it then stands on is new.
_FORGET_NS = 30_000_000_000
_REFUSED = outcome_code(Source.LOCAL, Reason.SPENT)


@dataclass
class _Held:
    """What a copy holds for one caller: its standing, a grant, and a basis for each scope that used it."""

    tokens: int
    until_ns: int
    grant_id: int
    k: int
    standing: Standing
    seen_ns: int = 0
    bases: dict[int, Basis] = field(default_factory=dict)


def zipf_blocks(
    blocks: int, *, decisions: int, callers: int, scopes: int, rate_per_s: float, seed: int = 1
) -> list[list[Verdict]]:
    """Runs of verdicts of one copy: callers and scopes by Zipf's law, grants of 3 s, 3 % refused.

    A basis is shared by the decisions of one caller, scope and grant, a standing by the grants of one caller until
    it has been idle for 30 s: as the limiter does it.
    """
    draw = np.random.default_rng(seed)
    count = blocks * decisions
    who = draw.choice(callers, count, p=_zipf(callers)).tolist()
    where = draw.choice(scopes, count, p=_zipf(scopes)).tolist()
    times = (10**15 + np.cumsum(draw.exponential(1e9 / rate_per_s, count))).astype(np.int64).tolist()
    refused = (draw.random(count) < 0.03).tolist()
    waits = draw.integers(1, 2_000, count).tolist()
    names = [f"acct-{caller * 2_654_435_761 % 10**7:07d}" for caller in range(callers)]
    routes = [f"{'GET' if scope % 3 else 'POST'} /v1/resource-{scope}/{{id}}" for scope in range(scopes)]
    held: dict[int, _Held] = {}
    verdicts: list[Verdict] = []
    for seq in range(count):
        caller, scope, now_ns = who[seq], where[seq], times[seq]
        terms = _TERMS[2 if caller < 4 else caller % 2]
        has = held.get(caller)
        if has is None or has.until_ns <= now_ns or has.tokens <= 0:
            size = max(1, terms.plan.burst // 4)
            if has is not None and now_ns - has.seen_ns < _FORGET_NS:
                standing = has.standing
            else:
                standing = Standing(names[caller], terms)
            grant_id = 10**15 + now_ns // 1000
            has = held[caller] = _Held(size, now_ns + _GRANT_LIFE_NS, grant_id, 3 + seq % 5, standing)
        has.seen_ns = now_ns
        basis = has.bases.get(scope)
        if basis is None:
            basis = has.bases[scope] = Basis(has.standing, routes[scope], has.grant_id, has.k)
        if refused[seq]:
            ready_at_ns = now_ns + waits[seq] * 1_000_000
            verdicts.append(Verdict(seq, now_ns, basis, False, _REFUSED, 1, has.tokens, ready_at_ns))
        else:
            has.tokens -= 1
            verdicts.append(Verdict(seq, now_ns, basis, True, 0, 1, has.tokens, 0))
    return [verdicts[at : at + decisions] for at in range(0, count, decisions)]


def _zipf(size: int) -> npt.NDArray[np.float64]:
    weights: npt.NDArray[np.float64] = 1.0 / np.arange(1, size + 1)
    shares: npt.NDArray[np.float64] = weights / weights.sum()
    return shares
