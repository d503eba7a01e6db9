"""Any history of N copies and one owner: lost answers, late duplicates, crashes, clock steps, outages, lost state.

Two machines. The first has a plan that refills and looks for the declared bound and all other invariants after every
step. The second hardly refills, so that the bucket's level is an exact account of what was stated.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from enforcer.core.dials import DEFAULT_DIALS, Dials
from enforcer.types import Plan
from tests.property import invariants
from tests.property.copy_model import ModelCopy
from tests.property.world import Fate, World

COPIES = 6
LARGEST_COST = 3
SECOND_US = 1_000_000

plans = st.sampled_from(
    (
        Plan("standard", 100.0, 200),
        Plan("even", 50.0, 50),
        Plan("small", 10.0, 10),
        Plan("tiny", 0.9, 3),
        Plan("large", 20_000.0, 40_000),
    )
)
all_dials = st.sampled_from(
    (
        DEFAULT_DIALS,
        Dials(k_floor=1),
        Dials(epsilon=0.5, overdraft=0.1, k_floor=1, expiry_us=2 * SECOND_US),
        Dials(overdraft=0.0, grace_us=0),
    )
)
copies = st.integers(0, COPIES - 1)
fates = st.sampled_from(("arrives", "arrives", "arrives", "arrives", "delayed", "unanswered"))
parts = st.one_of(st.floats(0.0, 2.0), st.just(2.0))
jitters = st.floats(0.0, 0.999)
spans_us = st.one_of(
    st.integers(0, 20_000), st.integers(0, 2 * SECOND_US), st.integers(0, 8 * SECOND_US), st.just(70 * SECOND_US)
)
steps_us = st.one_of(
    st.integers(-2 * SECOND_US, 2 * SECOND_US),
    st.integers(-10 * SECOND_US, 10 * SECOND_US),
    st.integers(-100 * SECOND_US, 100 * SECOND_US),
)


class OwnerMachine(RuleBasedStateMachine):
    """What both machines do. They differ in the plan, and in what they check."""

    world: World

    @rule(copy=copies, cost=st.integers(1, LARGEST_COST), fate=fates, jitter=jitters)
    def request(self, copy: int, cost: int, fate: Fate, jitter: float) -> None:
        """One request at one copy."""
        self.world.request(self._copy(copy), cost, fate=fate, jitter=jitter)

    @rule(part=st.floats(0.0, 1.5))
    def storm(self, part: float) -> None:
        """As many requests as a part of the burst, round all copies."""
        for number in range(min(40, round(part * self.world.plan.burst))):
            self.world.request(self._copy(number % COPIES), 1)

    @rule(copy=copies, part=st.floats(0.0, 1.2))
    def heap(self, copy: int, part: float) -> None:
        """Many requests that wait at one copy at once, all answered by one ask."""
        asking = self._copy(copy)
        asking.drop_expired(self.world.real_us)
        waiting = round(part * self.world.plan.burst)
        asking.offered += waiting
        self.world.exchange(asking, waiting=waiting, want=asking.want())
        self.world.spend(asking, waiting)

    @rule(copy=copies)
    def rush(self, copy: int) -> None:
        """All copies spend all that they hold at once, and what the bucket has is taken on top of it."""
        self.world.exchange(self._copy(copy), waiting=0, want=0)
        for holder in self.world.copies:
            self.world.drop_expired(holder)
            self.world.spend(holder, holder.left)
        self.heap(copy, 1.2)

    @rule(copy=copies, part=parts, fate=fates, jitter=jitters)
    def ask_ahead(self, copy: int, part: float, fate: Fate, jitter: float) -> None:
        """Ask for stock, however much."""
        asking = self._copy(copy)
        asking.drop_expired(self.world.real_us)
        asking.rate_per_s = part * self.world.plan.rate_per_s
        self.world.exchange(asking, waiting=0, want=round(part * self.world.plan.burst), fate=fate, jitter=jitter)

    @rule(part=parts, rounds=st.integers(1, 4), span_us=st.integers(0, SECOND_US))
    def hoard(self, part: float, rounds: int, span_us: int) -> None:
        """All copies take what they can get, again and again."""
        for _ in range(rounds):
            for number in range(COPIES):
                self.ask_ahead(number, part, "arrives", 0.5)
            self.world.pass_time(span_us)

    @rule(copy=copies, fate=fates)
    def give_home(self, copy: int, fate: Fate) -> None:
        """Settle on idle."""
        idle = self._copy(copy)
        idle.give_home()
        self.world.exchange(idle, waiting=0, want=0, fate=fate)

    @rule(span_us=spans_us)
    def pass_time(self, span_us: int) -> None:
        """On all clocks."""
        self.world.pass_time(span_us)

    @precondition(lambda self: len(self.world.late) > 0)
    @rule(which=st.integers(0, 29))
    def arrive_late(self, which: int) -> None:
        """An ask arrives that was held back, or arrives again; nobody reads the answer."""
        self.world.owner_answers(self.world.late[which % len(self.world.late)])

    @rule(copy=copies)
    def crash(self, copy: int) -> None:
        """A copy dies with what it held, and starts again."""
        self.world.crash(self._copy(copy))

    @rule()
    def outage_begins_or_ends(self) -> None:
        """The owner cannot be reached, or can be again."""
        self.world.away = not self.world.away

    def _copy(self, number: int) -> ModelCopy:
        return self.world.copies[number]


class BoundMachine(OwnerMachine):
    """The declared bound, k, retry times, and that nothing is minted; also across clock steps and lost state."""

    @initialize(plan=plans, dials=all_dials)
    def begin(self, plan: Plan, dials: Dials) -> None:
        """A fleet for one caller."""
        self.world = World(plan, copies=COPIES, dials=dials, largest_cost=LARGEST_COST)

    @rule(step_us=steps_us)
    def step_owner_clock(self, step_us: int) -> None:
        """The owner's clock is set."""
        self.world.step_clock(step_us)

    @rule()
    def lose_state(self) -> None:
        """The owner restarts without its memory."""
        self.world.lose_state()

    @invariant()
    def bound_holds(self) -> None:
        """Over every window that ends now."""
        self.world.check_bound()


class LedgerMachine(OwnerMachine):
    """A bucket that hardly refills: its level is an exact account of the totals that were stated."""

    @initialize(burst=st.sampled_from((10, 200, 40_000)))
    def begin(self, burst: int) -> None:
        """Tombstones are kept for the whole history, so that every total counts, however late."""
        self.world = World(
            Plan("still", 1e-9, burst), copies=COPIES, dials=Dials(keep_us=10**12), largest_cost=LARGEST_COST
        )

    def teardown(self) -> None:
        """All copies state all totals, the dead ones' grants expire: what is missing is what was spent."""
        self.world.away = False
        self.world.settle_everything()
        bucket = self.world.bucket
        if bucket is not None:
            assert all(not member.open for member in bucket.members.values())
            invariants.settled_totals_equal_what_was_spent(bucket.tokens_micro, self.world.plan, self.world.told)
            invariants.living_copies_told_all(self.world.told, self.world.spent, self.world.crashed)


# The bound is what is declared to users: ten times the examples of every other property, so 2,000 in CI.
BOUND_EXAMPLES = 10 * settings().max_examples

TestBound = BoundMachine.TestCase
TestBound.settings = settings(stateful_step_count=50, max_examples=BOUND_EXAMPLES)
TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(stateful_step_count=40)
