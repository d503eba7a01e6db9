"""The designs that are compared: each runs the same traffic, and is judged by the same figures.

Three decide in each copy alone, three ask an owner. Of the last, `ours` is the product's own account and owner.
"""

from __future__ import annotations

from collections.abc import Callable

from enforcer.types import Plan
from tests.sim.figures import Figures, oracle, worst_excess
from tests.sim.fleet import Fleet
from tests.sim.owners import OwnerRule, burst_over_k, exact, specified
from tests.sim.traffic import FLEET, Traffic
from tests.sim.world import World

#: Runs one caller's traffic: (traffic, plan, seed).
Design = Callable[[Traffic, Plan, int], Figures]

_NEVER_MS = 1e12


def _alone(rate: Callable[[Plan], float], burst: Callable[[Plan], float]) -> Design:
    """A bucket in each copy, and nothing shared."""

    def run(requests: Traffic, plan: Plan, seed: int) -> Figures:
        per_us, capacity = rate(plan) / 1e6, burst(plan)
        tokens, before_us = [capacity] * FLEET, [0] * FLEET
        admitted: list[int] = []
        wrongful, exactly = 0, oracle(requests, plan)
        for at_us, copy, allowed in zip(requests.at_us, requests.copy, exactly, strict=True):
            level = min(capacity, tokens[copy] + per_us * (at_us - before_us[copy]))
            before_us[copy] = at_us
            if level >= 1.0:
                level -= 1.0
                admitted.append(at_us)
            else:
                wrongful += allowed
            tokens[copy] = level
        return Figures(
            offered=len(exactly),
            admitted=len(admitted),
            oracle_admitted=sum(exactly),
            wrongful=wrongful,
            waited=0,
            asks=0,
            worst_excess=worst_excess(admitted, plan),
            burst=plan.burst,
            seconds=requests.seconds,
        )

    return run


def asking(rule: OwnerRule, world: World) -> Design:
    """Copies that hold the product's accounts, and an owner that answers by this rule."""

    def run(requests: Traffic, plan: Plan, seed: int) -> Figures:
        return Fleet(rule, [plan], world, seed=seed).run([requests])[0]

    return run


DESIGNS: dict[str, Design] = {
    "full_plan_per_copy": _alone(lambda plan: plan.rate_per_s, lambda plan: plan.burst),
    "divided": _alone(lambda plan: plan.rate_per_s / FLEET, lambda plan: max(1.0, plan.burst / FLEET)),
    "divided_floor_1": _alone(
        lambda plan: max(1.0, plan.rate_per_s / FLEET), lambda plan: max(1.0, plan.burst / FLEET)
    ),
    "ask_per_request": asking(exact(), World(idle_settle_us=0, ahead_above_ms=_NEVER_MS)),
    "burst_over_k": asking(burst_over_k(), World(ahead_above_ms=_NEVER_MS)),
    "ours": asking(specified(), World()),
}
