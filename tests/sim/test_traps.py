"""Mistakes that a policy of this kind invites, each made on purpose: what it would cost, and that it is not made."""

from __future__ import annotations

import math
import random

import msgspec
import pytest

from enforcer.core import sizing
from enforcer.core.dials import DEFAULT_DIALS, Dials
from enforcer.messages import Answer, Ask
from enforcer.types import Plan
from tests.sim.owners import OwnerRule, specified
from tests.sim.reduced import LARGE, STANDARD, one, send, written
from tests.sim.traffic import Traffic


def _dry() -> tuple[Plan, Traffic]:
    """A plan that next to never refills, asked for three times its burst over twelve copies."""
    chance = random.Random(5)
    return Plan("dry", 0.01, 200), written(
        [(chance.uniform(0.0, 10.0), chance.randrange(12)) for _ in range(600)], seconds=10.0
    )


def test_a_debt_never_mints_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """After leases expire, tokens + overdraft can be negative: unclamped, the owner would give a negative number."""

    def unclamped(micro: float) -> int:
        return math.floor((micro + sizing.ROUNDING) / sizing.MICRO)

    clean = one("flood", 12, seconds=60.0)
    monkeypatch.setattr(sizing, "whole_tokens", unclamped)
    minted = one("flood", 12, seconds=60.0)
    assert minted.worst_excess > 1.5 * clean.worst_excess
    assert minted.admitted > clean.admitted


def _hearing_only_who_asks(rule: OwnerRule) -> OwnerRule:
    """An owner that sees what reaches it, and not what copies refuse by themselves."""

    def hearing(state: object, ask: Ask, now_us: int) -> tuple[object, Answer]:
        known = ask.waiting + sum(total.spent for total in ask.settlements if total.final)
        return rule(state, msgspec.structs.replace(ask, offered=min(ask.offered, known)), now_us)

    return hearing


def test_pressure_is_built_on_what_is_offered_not_on_what_is_refused_at_the_owner() -> None:
    """Pacing removes the refusals that it would be built on: it would settle at its own threshold."""
    clean = one("poisson 2x", 60, plan=LARGE, seconds=8.0)
    deaf = one("poisson 2x", 60, plan=LARGE, seconds=8.0, rule=_hearing_only_who_asks(specified()))
    assert deaf.asks_late_per_s > 3.0 * clean.asks_late_per_s


def test_one_token_is_not_told_to_every_copy() -> None:
    """If all k come back when one token is there, k × rate asks come for it."""
    clean = one("abuse", 30, seconds=20.0)
    told = one("abuse", 30, seconds=20.0, dials=Dials(pause_max_us=0))
    assert told.asks_per_s > 4.0 * clean.asks_per_s


def test_what_the_waiting_took_is_not_leased_to_them_as_well() -> None:
    """A bucket that does not refill gives its burst, once."""
    plan, requests = _dry()
    rule = specified(Dials(overdraft=0.0))
    assert 190 <= send(requests, plan=plan, rule=rule).admitted <= 200

    def generous(state: object, ask: Ask, now_us: int) -> tuple[object, Answer]:
        after, answered = rule(state, ask, now_us)
        if answered.grant is not None:
            doubled = msgspec.structs.replace(answered.grant, size=answered.grant.size + ask.waiting)
            answered = msgspec.structs.replace(answered, grant=doubled)
        return after, answered

    assert send(requests, plan=plan, rule=generous).admitted > 205


def test_the_same_seed_is_the_same_run() -> None:
    """Or no figure of it could be repeated."""
    assert one("flood", 12) == one("flood", 12)
    assert one("flood", 12) != one("flood", 12, seed=2)


def test_the_oracle_is_the_bucket_that_was_sold() -> None:
    """At a burst that is used up at once and a rate that comes in by the clock."""
    requests = written([(0.0, 0)] * 205 + [(0.05, 0)] * 10, seconds=1.0)
    assert STANDARD.burst + 5 == send(requests).oracle_admitted
    assert DEFAULT_DIALS.epsilon == 1.0
