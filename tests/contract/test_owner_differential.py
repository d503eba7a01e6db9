"""The script and the specification, side by side on the same history and the same clock: equal to the last bit."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest

from enforcer.core.asks import check_ask
from enforcer.core.bucket import answer
from enforcer.core.dials import DEFAULT_DIALS, Dials
from enforcer.core.quota import OutsideCalendar
from enforcer.core.state import Bucket
from enforcer.messages import Answer, Ask, AskFault, SettleCause, Settlement
from enforcer.owners.redis import RedisOwner
from enforcer.types import Grant, Plan
from tests.contract.desk import RedisDesk

PLANS = (
    Plan("standard", 100.0, 200),
    Plan("slow", 54 / 60, 10),
    Plan("daily", 1 / 86_400, 5),
    Plan("large", 20_000.0, 40_000),
    Plan("huge", 1_000_000.0, 2_000_000),
    Plan("one", 1.0, 1),
    Plan("third", 1 / 3, 7),
)
#: Periods of a quota, so short that a history goes through many.
PERIOD_US = 2_500_000
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

    def __init__(self, chance: random.Random, caller: str, plans: tuple[Plan, ...], *, quota: float = 0.0) -> None:
        """`quota`: in what part of the asks the limit is a calendar quota."""
        self._chance = chance
        self._caller = caller
        self._plans = plans
        self._quota = quota
        self._held: dict[str, list[Grant]] = {}
        self._stated: list[Settlement] = []
        self._ask_nos: dict[str, int] = {}

    def ask(self, now_us: int) -> Ask:
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
            turns=self._turns(now_us) if chance.random() < self._quota else (),
        )

    def _turns(self, now_us: int) -> tuple[int, ...]:
        """Around the owner's present, mostly: clocks differ."""
        chance = self._chance
        first = now_us // PERIOD_US - chance.choice((0, 1, 2, 2, 2, 4 if chance.random() < 0.3 else 1))
        if chance.random() < 0.03:
            first += chance.choice((-1, 1)) * 1_000
        first = max(1, first)
        return tuple(number * PERIOD_US for number in range(first, first + chance.choice((2, 4, 5, 5))))

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
            spent = chance.randint(0, grant.size) if chance.random() < 0.95 else grant.size + 3
            held = (0, 0) if chance.random() < 0.1 else (grant.size, grant.expires_at_us)
            stated.append(Settlement(grant.grant_id, spent, final, SettleCause.ASK, *held))
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


@pytest.mark.parametrize("quota", [0.0, 1.0, 0.5], ids=["bucket", "quota", "both"])
@pytest.mark.parametrize("dials", [DEFAULT_DIALS, TIGHT], ids=["default", "tight"])
@pytest.mark.parametrize("seed", range(6))
def test_script_and_specification_answer_alike(
    desk: RedisDesk, valkey_url: str, dials: Dials, seed: int, quota: float
) -> None:
    """What the property tests prove about the specification must be true of the script that is shipped."""
    chance = random.Random(seed)
    owner = RedisOwner(valkey_url, timeout_s=10.0, dials=dials, script=desk.script)
    plans = PLANS if seed == 0 else (PLANS[seed % len(PLANS)], PLANS[(seed + 3) % len(PLANS)])[: 1 + seed % 2]
    copies = RandomCopies(chance, desk.caller, plans, quota=quota)
    bucket: Bucket | None = None
    seen: Counter[str] = Counter()
    for step in range(400):
        desk.set_clock(max(1, desk.now_us + _time_step(chance)))
        if chance.random() < 0.01:
            desk.lose_state()
            bucket = None
        ask = copies.ask(desk.now_us)
        check_ask(ask)
        specified: Answer | AskFault
        try:
            bucket, specified = answer(bucket, ask, desk.now_us, dials)
        except OutsideCalendar as outside:
            specified = outside.fault
        computed = owner.ask([ask])[0]
        assert _in_order(specified) == _in_order(computed), f"step {step}: {ask}"
        if isinstance(computed, AskFault):
            seen["outside"] += 1
            continue
        seen.update(granted=computed.grant is not None, credited=bool(computed.credited), adopted=computed.adopted)
        copies.take(ask.member, computed.grant)
    assert all(seen[what] for what in ("granted", "credited")), seen
    assert (seen["outside"] > 0) == (quota > 0)
    owner.close()


def _in_order(outcome: Answer | AskFault) -> Answer | AskFault:
    """These members claim each other's grants; credits of one id come in any order."""
    if isinstance(outcome, AskFault):
        return outcome
    credited = sorted(outcome.credited, key=lambda given: (given.grant_id, given.member))
    return msgspec.structs.replace(outcome, credited=tuple(credited))


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
