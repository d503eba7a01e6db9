"""The script and the specification, side by side on the same history and the same clock: equal to the last bit."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from enforcer.core.asks import check_ask
from enforcer.core.bucket import answer
from enforcer.core.dials import DEFAULT_DIALS, Dials
from enforcer.core.state import Bucket
from enforcer.owners.redis import RedisOwner
from enforcer.types import Ask, Grant, Plan, SettleCause, Settlement
from tests.contract.desk import RedisDesk, answers

PLANS = (
    Plan("standard", 100.0, 200),
    Plan("slow", 54 / 60, 10),
    Plan("daily", 1 / 86_400, 5),
    Plan("large", 20_000.0, 40_000),
    Plan("huge", 1_000_000.0, 2_000_000),
    Plan("one", 1.0, 1),
    Plan("third", 1 / 3, 7),
)
TIGHT = Dials(
    expiry_us=300_000,
    grace_us=50_000,
    keep_us=900_000,
    k_window_us=200_000,
    k_floor=1,
    epsilon=0.6,
    overdraft=0.1,
    clock_back_us=2_000_000,
)


class RandomCopies:
    """Members that keep the protocol only roughly: they forget, repeat, reorder and over-state."""

    def __init__(self, chance: random.Random, caller: str, plans: tuple[Plan, ...]) -> None:
        self._chance = chance
        self._caller = caller
        self._plans = plans
        self._held: dict[str, list[Grant]] = {}
        self._stated: list[Settlement] = []
        self._ask_nos: dict[str, int] = {}

    def ask(self) -> Ask:
        """Any ask, mostly a sensible one."""
        chance = self._chance
        member = f"gw-{chance.randrange(chance.choice((2, 12)))}/{chance.randrange(3)}"
        number = self._ask_nos.get(member, 0) + 1
        if chance.random() < 0.1:
            number = max(1, number - chance.randrange(4))
        self._ask_nos[member] = max(number, self._ask_nos.get(member, 0))
        settles_only = chance.random() < 0.15
        plan = chance.choice(self._plans)
        return Ask(
            caller=self._caller,
            limit="rate",
            plan=plan,
            member=member,
            ask_no=number,
            settlements=self._settlements(member),
            waiting=0 if settles_only else chance.choice((0, 1, 1, 3, plan.burst // 3, plan.burst)),
            want=0 if settles_only else chance.choice((0, 1, 7, plan.burst // 2, plan.burst * 2)),
            rate_per_s=chance.choice((0.0, 0.5, plan.rate_per_s / 3, plan.rate_per_s * 2)),
            offered=chance.choice((0, 1, 9, plan.burst * 3)),
            jitter=chance.random(),
        )

    def take(self, member: str, grant: Grant | None) -> None:
        """Hold what was granted, unless the answer was lost."""
        if grant is not None and self._chance.random() < 0.85:
            self._held.setdefault(member, []).append(grant)

    def _settlements(self, member: str) -> tuple[Settlement, ...]:
        chance = self._chance
        stated = []
        for grant in list(self._held.get(member, ())):
            if chance.random() < 0.1:
                continue
            final = chance.random() < 0.6
            stated.append(Settlement(grant.grant_id, chance.randint(0, grant.size), final, SettleCause.ASK))
            if final and chance.random() < 0.9:
                self._held[member].remove(grant)
        if self._stated and chance.random() < 0.3:
            stated += chance.choices(self._stated[-30:], k=2)
        self._stated += stated
        chance.shuffle(stated)
        return tuple(stated)


@pytest.fixture
def desk(valkey_url: str) -> Iterator[RedisDesk]:
    made = RedisDesk(valkey_url)
    yield made
    made.close()


@pytest.mark.parametrize("dials", [DEFAULT_DIALS, TIGHT], ids=["default", "tight"])
@pytest.mark.parametrize("seed", range(6))
def test_script_and_specification_answer_alike(desk: RedisDesk, valkey_url: str, dials: Dials, seed: int) -> None:
    """What the property tests prove about the specification must be true of the script that is shipped."""
    chance = random.Random(seed)
    owner = RedisOwner(valkey_url, timeout_s=10.0, dials=dials, script=desk.script)
    plans = PLANS if seed == 0 else (PLANS[seed % len(PLANS)], PLANS[(seed + 3) % len(PLANS)])[: 1 + seed % 2]
    copies = RandomCopies(chance, desk.caller, plans)
    bucket: Bucket | None = None
    for step in range(400):
        desk.set_clock(max(1, desk.now_us + _time_step(chance)))
        ask = copies.ask()
        check_ask(ask)
        bucket, specified = answer(bucket, ask, desk.now_us, dials)
        computed = answers(owner.ask([ask]))[0]
        assert specified == computed, f"step {step}: {ask}"
        copies.take(ask.member, computed.grant)
    owner.close()


def _time_step(chance: random.Random) -> int:
    """Mostly a little later; sometimes much, sometimes back, seldom years."""
    return chance.choice(
        (
            0,
            chance.randrange(2_000),
            chance.randrange(200_000),
            chance.randrange(200_000),
            chance.randrange(3_000_000),
            chance.randrange(3_000_000) if chance.random() < 0.5 else -chance.randrange(1_500_000),
            chance.randrange(90_000_000) if chance.random() < 0.2 else -chance.randrange(30_000_000),
            315_360_000_000_000 if chance.random() < 0.01 else 0,
        )
    )
