"""Any history of N copies and a calendar quota: never more than the amount is admitted in a period.

Crashes, lost answers, late and repeated asks, outages that copies spend through, clocks that step over the turn in both
directions, copies whose calendar is not the owner's. A period is told by the ids of the grants that were spent.
"""

from __future__ import annotations

from collections import Counter, deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from enforcer.core.bucket import answer
from enforcer.core.dials import DEFAULT_DIALS, Dials
from enforcer.core.quota import OutsideCalendar
from enforcer.core.sizing import MICRO
from enforcer.core.state import Bucket
from enforcer.messages import Answer, Ask
from enforcer.types import Plan
from tests.property.copy_model import ModelCopy
from tests.property.world import START_US, Fate

COPIES = 4
SECOND_US = 1_000_000
PERIOD_US = 20 * SECOND_US
copies = st.integers(0, COPIES - 1)
fates = st.sampled_from(("arrives", "arrives", "arrives", "delayed", "unanswered"))
# Small and large, to either side; and exactly up to a turn.
steps_us = st.one_of(st.integers(-3 * PERIOD_US, 3 * PERIOD_US), st.integers(-2 * SECOND_US, 2 * SECOND_US))


class QuotaMachine(RuleBasedStateMachine):
    """The owner is the pure specification; `spent` is the true account, by period."""

    @initialize(amount=st.sampled_from((1, 10, 500)), dials=st.sampled_from((DEFAULT_DIALS, Dials(k_floor=1))))
    def begin(self, amount: int, dials: Dials) -> None:
        """A new period has just begun, or is about to."""
        self.plan = Plan("quota", amount / 20, amount)
        self.dials = dials
        self.bucket: Bucket | None = None
        self.copies = [ModelCopy(f"gw-{number}", self.plan) for number in range(COPIES)]
        self.owner_us = START_US
        self.real_us = 0
        self.away = False
        self.skew = 0
        self.spent: Counter[int] = Counter()
        self.late: deque[Ask] = deque(maxlen=20)

    @rule(copy=copies, cost=st.integers(1, 3), fate=fates)
    def request(self, copy: int, cost: int, fate: Fate) -> None:
        """One request at one copy; it is admitted from what is held, else the owner is asked."""
        asking = self._living(copy)
        if asking.left < cost and self.real_us >= asking.refused_until_us:
            self._exchange(asking, waiting=cost - asking.left, want=asking.want(), fate=fate)
        if asking.left >= cost:
            self._spend(asking, cost)

    @rule(copy=copies, part=st.floats(0.0, 1.2), want=st.floats(0.0, 1.2), fate=fates)
    def heap(self, copy: int, part: float, want: float, fate: Fate) -> None:
        """Much at once, for those that wait and for stock."""
        asking, amount = self._living(copy), self.plan.burst
        waiting = round(part * amount)
        self._exchange(asking, waiting=waiting, want=round(want * amount), fate=fate)
        self._spend(asking, min(waiting, asking.left))

    @rule()
    def rush(self) -> None:
        """All spend all that they hold."""
        for copy in range(COPIES):
            self._spend(self._living(copy), self.copies[copy].left)

    @rule(copy=copies, fate=fates)
    def give_home(self, copy: int, fate: Fate) -> None:
        """Settle on idle."""
        self.copies[copy].give_home()
        self._exchange(self.copies[copy], waiting=0, want=0, fate=fate)

    @rule(span_us=st.one_of(st.integers(0, 8 * SECOND_US), st.just(70 * SECOND_US)))
    def pass_time(self, span_us: int) -> None:
        """On all clocks."""
        self.owner_us += span_us
        self.real_us += span_us

    @rule(beside_us=st.integers(-2, 2))
    def come_to_the_turn(self, beside_us: int) -> None:
        """To the microsecond."""
        self.pass_time(max(0, PERIOD_US - self.owner_us % PERIOD_US + beside_us))

    @rule(step_us=steps_us)
    def step_clock(self, step_us: int) -> None:
        """The owner's alone."""
        self.owner_us += step_us

    @rule(periods=st.integers(-4, 4))
    def skew_calendars(self, periods: int) -> None:
        """The copies' idea of the owner's time."""
        self.skew = periods

    @precondition(lambda self: len(self.late) > 0)
    @rule(which=st.integers(0, 19))
    def arrive_late(self, which: int) -> None:
        """Or again; nobody reads the answer."""
        self._owner_answers(self.late[which % len(self.late)])

    @rule(copy=copies)
    def crash(self, copy: int) -> None:
        """What it held and spent is known to nobody."""
        self.copies[copy] = self.copies[copy].restarted()

    @rule()
    def outage_begins_or_ends(self) -> None:
        """Meanwhile copies spend past the expiry."""
        self.away = not self.away

    @invariant()
    def no_period_sells_more_than_its_amount(self) -> None:
        """And what is left is in no case what was sold already."""
        assert all(spent <= self.plan.burst for spent in self.spent.values()), self.spent
        if self.bucket is not None:
            sold = self.spent[self.bucket.period_start_us // PERIOD_US]
            assert self.bucket.tokens_micro <= (self.plan.burst - sold) * MICRO

    def _living(self, copy: int) -> ModelCopy:
        if not self.away:
            self.copies[copy].drop_expired(self.real_us)
        return self.copies[copy]

    def _spend(self, copy: ModelCopy, tokens: int) -> None:
        for grant_id, part in copy.spend(tokens):
            self.spent[grant_id // PERIOD_US] += part

    def _exchange(self, copy: ModelCopy, *, waiting: int, want: int, fate: Fate) -> None:
        period = self.owner_us // PERIOD_US + self.skew
        turns = tuple(number * PERIOD_US for number in range(period - 2, period + 3))
        asked = replace(copy.ask(waiting=waiting, want=want, jitter=0.5), turns=turns)
        self.late.append(asked)
        if self.away or fate == "delayed":
            return
        answered = self._owner_answers(asked)
        if answered is None:
            self.skew = 0
        elif fate == "arrives":
            copy.receive(asked, answered, sent_real_us=self.real_us, real_us=self.real_us)

    def _owner_answers(self, asked: Ask) -> Answer | None:
        try:
            self.bucket, answered = answer(self.bucket, asked, self.owner_us, self.dials)
        except OutsideCalendar:
            return None
        return answered


TestQuota = QuotaMachine.TestCase
TestQuota.settings = settings(stateful_step_count=50)
