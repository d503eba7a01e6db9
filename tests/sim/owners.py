"""The owners that the designs are compared by: the product's own, the plain rule burst ÷ k, and one ask per request.

All answer the same ask, so that one fleet drives them all. Pure: state and time are arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from enforcer.core.bucket import answer
from enforcer.core.dials import DEFAULT_DIALS, Dials
from enforcer.messages import Answer, Ask
from enforcer.types import Grant

#: How long after its expiry an owner still waits for a grant's total.
_GRACE_US = 1_000_000
#: Answers one ask: (state or None, ask, owner's clock) to the next state and the answer.
OwnerRule = Callable[[Any, Ask, int], tuple[Any, Answer]]


def specified(dials: Dials = DEFAULT_DIALS) -> OwnerRule:
    """The product's owner: the specification that the script computes to the last bit."""

    def rule(state: Any, ask: Ask, now_us: int) -> tuple[Any, Answer]:
        return answer(state, ask, now_us, dials)

    return rule


@dataclass
class _Plain:
    """A bucket that lends a fixed share: tokens, open grants (id to member, expiry, size, spent), who asked when."""

    tokens: float
    clock_us: int
    last_id: int = 0
    open: dict[int, tuple[str, int, int, int]] = field(default_factory=dict)
    seen_us: dict[str, int] = field(default_factory=dict)


def burst_over_k(*, expiry_us: int = 2_000_000, window_us: int = 10_000_000, k_floor: int = 4) -> OwnerRule:
    """The plain rule: each grant is the burst ÷ k, in part where less is left; k is counted over ten seconds."""

    def rule(state: _Plain | None, ask: Ask, now_us: int) -> tuple[_Plain, Answer]:
        work = state or _Plain(float(ask.plan.burst), now_us)
        _settle_plain(work, ask, now_us)
        work.seen_us[ask.member] = now_us
        k = sum(1 for seen_us in work.seen_us.values() if seen_us > now_us - window_us)
        share = max(ask.plan.burst // max(k, k_floor), ask.waiting)
        size = min(share, int(work.tokens)) if ask.waiting + ask.want > 0 else 0
        return work, _grant(work, ask, size, now_us, k, expiry_us)

    return rule


def exact() -> OwnerRule:
    """One ask per request: the owner gives what waits and lends nothing."""

    def rule(state: _Plain | None, ask: Ask, now_us: int) -> tuple[_Plain, Answer]:
        work = state or _Plain(float(ask.plan.burst), now_us)
        _settle_plain(work, ask, now_us)
        answered = _grant(work, ask, min(ask.waiting, int(work.tokens)), now_us, 1, 1_000_000)
        # What waited is spent; nothing of it is lent, so nothing comes home.
        work.open.clear()
        return work, answered

    return rule


def _settle_plain(work: _Plain, ask: Ask, now_us: int) -> None:
    burst = float(ask.plan.burst)
    work.tokens = min(burst, work.tokens + ask.plan.rate_per_s * (now_us - work.clock_us) / 1e6)
    work.clock_us = now_us
    for stated in ask.settlements:
        known = work.open.get(stated.grant_id)
        if known is None:
            continue
        member, until_us, size, _ = known
        if stated.final:
            work.tokens = min(burst, work.tokens + size - stated.spent)
            del work.open[stated.grant_id]
        else:
            work.open[stated.grant_id] = (member, until_us, size, stated.spent)
    for grant_id in [grant_id for grant_id, known in work.open.items() if known[1] + _GRACE_US <= now_us]:
        _, _, size, spent = work.open.pop(grant_id)
        work.tokens = min(burst, work.tokens + size - spent)


def _grant(work: _Plain, ask: Ask, size: int, now_us: int, k: int, expiry_us: int) -> Answer:
    grant = None
    if size > 0:
        work.last_id = max(now_us, work.last_id + 1)
        work.tokens -= size
        grant = Grant(work.last_id, size, k, now_us, now_us + expiry_us)
        work.open[grant.grant_id] = (ask.member, grant.expires_at_us, size, 0)
    return Answer(grant, k, work.tokens, 0, now_us, ())
