"""N copies, one owner and the network between them, with a true account of every token: what the machines drive."""

from __future__ import annotations

from collections import deque
from typing import Literal

from msgspec.structs import replace

from enforcer.core.bucket import answer
from enforcer.core.dials import Dials
from enforcer.core.sizing import MICRO
from enforcer.core.state import Bucket
from enforcer.messages import Answer, Ask
from enforcer.types import Plan
from tests.property import invariants
from tests.property.copy_model import ModelCopy

START_US = 1_780_000_000_000_000

#: What the network does with an ask: brings it and the answer, holds it back, or loses the answer.
Fate = Literal["arrives", "delayed", "unanswered"]


class World:
    """The owner is the pure specification; every answer of it is checked against the invariants."""

    def __init__(self, plan: Plan, *, copies: int, dials: Dials, largest_cost: int = 1) -> None:
        self.plan = plan
        self.dials = dials
        self.largest_cost = largest_cost
        self.copies = [ModelCopy(f"gw-{number}", plan) for number in range(copies)]
        self.bucket: Bucket | None = None
        self.owner_us = START_US
        self.real_us = 0
        self.away = False
        self.admissions = invariants.Admissions()
        self.spent: dict[int, int] = {}
        self.told: dict[int, int] = {}
        self.known_open: set[int] = set()
        self.adopted: set[int] = set()
        self.was_lost = False
        self.last_grant_id = 0
        self.crashed: set[int] = set()
        self.late: deque[Ask] = deque(maxlen=30)
        self.asked_in: dict[str, int] = {}

    def pass_time(self, microseconds: int) -> None:
        """On all clocks."""
        self.owner_us += microseconds
        self.real_us += microseconds

    def request(self, copy: ModelCopy, cost: int, *, fate: Fate = "arrives", jitter: float = 0.0) -> bool:
        """One request at one copy; True if it was admitted."""
        self.drop_expired(copy)
        copy.offered += cost
        if copy.left >= cost:
            self.spend(copy, cost)
            return True
        if self.real_us < copy.refused_until_us:
            return False
        self.exchange(copy, waiting=cost - copy.left, want=copy.want(), fate=fate, jitter=jitter)
        if copy.left >= cost:
            self.spend(copy, cost)
            return True
        return False

    def drop_expired(self, copy: ModelCopy) -> None:
        """A copy stops spending what has expired, unless the owner is away: then it fails static."""
        if not self.away:
            copy.drop_expired(self.real_us)

    def exchange(
        self,
        copy: ModelCopy,
        *,
        waiting: int,
        want: int,
        fate: Fate = "arrives",
        jitter: float = 0.0,
    ) -> None:
        """One ask over the network. What may still arrive, or arrive again, is kept in `late`."""
        asked = copy.ask(waiting=waiting, want=want, jitter=jitter)
        sent_us = self.real_us
        self.late.append(asked)
        if self.away or fate == "delayed":
            return
        answered = self.owner_answers(asked)
        if fate == "arrives":
            copy.receive(asked, answered, sent_real_us=sent_us, real_us=self.real_us)

    def owner_answers(self, asked: Ask) -> Answer:
        """The owner takes an ask, and all that must hold is looked at."""
        before = self.bucket
        after, answered = answer(before, asked, self.owner_us, self.dials)
        self._keep_account(before, after, asked, answered)
        self.bucket = after
        self._look_at_adoption(before, after, asked, answered)
        invariants.time_never_moves_back(before, after, self.owner_us, self.dials)
        invariants.nothing_is_minted(after, self.plan, self.dials, adopted=self.adopted)
        invariants.waiting_never_overdraw(after, answered, self.plan, self.dials)
        invariants.settling_twice_changes_nothing(after, asked, self.dials)
        if answered.grant is None and asked.ask_no > _highest_ask(before, asked.member):
            invariants.retry_after_is_enough(after, asked, answered, self.dials)
        invariants.k_counts_distinct_copies(answered, self._asked_lately(asked, answered))
        self.check_bound()
        return answered

    def check_bound(self) -> None:
        """The declared bound, over all windows that end now."""
        invariants.admitted_within_burst_rate_and_epsilon(
            self.admissions, self.plan, self.dials, copies=len(self.copies), largest_cost=self.largest_cost
        )

    def spend(self, copy: ModelCopy, tokens: int) -> None:
        """Admit: the tokens are spent, and the true account knows it."""
        for grant_id, part in copy.spend(tokens):
            self.spent[grant_id] = self.spent.get(grant_id, 0) + part
            self.admissions.admitted += part
            if grant_id not in self.known_open:
                self.admissions.beyond += part
        self.check_bound()

    def lose_state(self) -> None:
        """The owner restarts: every grant is unknown to it, and the bucket is full. That takes a second, and its clock
        is not behind what it was: ids are unique by the clock.
        """
        self.pass_time(1_000_000)
        self.owner_us = max(self.owner_us, self.last_grant_id + 1)
        if self.bucket is not None:
            self.admissions.beyond += self.plan.burst - self.bucket.tokens_micro / MICRO
        self.bucket = None
        self.was_lost = True
        self.known_open.clear()
        self.adopted.clear()
        self.told.clear()

    def step_clock(self, step_us: int) -> None:
        """The owner's clock is set; after a loss not behind the ids that it gave out before and no longer knows."""
        self.owner_us += step_us
        if self.was_lost:
            self.owner_us = max(self.owner_us, self.last_grant_id + 1)

    def crash(self, copy: ModelCopy) -> None:
        """The copy dies; what it spent and did not state is known to nobody."""
        self.crashed.update(held.grant.grant_id for held in copy.held)
        self.crashed.update(copy.finals)
        self.copies[self.copies.index(copy)] = copy.restarted()

    def settle_everything(self) -> None:
        """All copies close and are heard; then the grants of the dead expire."""
        for copy in self.copies:
            copy.give_home()
            self.exchange(copy, waiting=0, want=0)
        if self.bucket is not None:
            self.pass_time(self.dials.expiry_us + self.dials.grace_us)
            self.exchange(self.copies[0], waiting=0, want=0)

    def _keep_account(self, before: Bucket | None, after: Bucket, asked: Ask, answered: Answer) -> None:
        if before is not None:
            self.admissions.refilled_s += max(0, after.clock_us - before.clock_us) / 1_000_000
        for credit in answered.credited:
            self.admissions.beyond += self.spent.get(credit.grant_id, 0) - credit.spent
        if answered.grant is not None:
            if before is not None:
                invariants.grant_ids_rise(self.last_grant_id, answered.grant.grant_id)
            self.last_grant_id = answered.grant.grant_id
        for stated in asked.settlements:
            if stated.grant_id in self.told:
                self.told[stated.grant_id] = max(self.told[stated.grant_id], stated.spent)
        # What was lent before the loss stays outside the bound, also when the owner has taken it in.
        still_open = {g.grant_id for member in after.members.values() for g in member.open}
        issued = {answered.grant.grant_id} if answered.grant is not None else set()
        self.adopted |= still_open - self.known_open - issued
        self.known_open = still_open - self.adopted
        if answered.grant is not None:
            self.told[answered.grant.grant_id] = 0

    def _look_at_adoption(self, before: Bucket | None, after: Bucket, asked: Ask, answered: Answer) -> None:
        """What is taken in is debited, down to -1 burst; what that leaves out is beyond the bound, as before."""
        if not answered.adopted:
            return
        unknown = tuple(replace(stated, size=0) for stated in asked.settlements)
        without, told = answer(before, replace(asked, settlements=unknown), self.owner_us, self.dials)
        assert told.adopted == 0
        self.admissions.beyond += max(0.0, _in_all(after) - _in_all(without))
        assert after.tokens_micro / MICRO + _granted(answered) <= without.tokens_micro / MICRO + _granted(told)

    def _asked_lately(self, asked: Ask, answered: Answer) -> int:
        window = answered.owner_now_us // self.dials.k_window_us
        if asked.waiting + asked.want > 0:
            self.asked_in[asked.member] = window
        return sum(1 for seen_in in self.asked_in.values() if window - 1 <= seen_in <= window)


def _in_all(bucket: Bucket) -> float:
    """Tokens in the bucket, and unspent in the hands of copies as far as the owner knows."""
    lent = sum(grant.size - grant.spent for member in bucket.members.values() for grant in member.open)
    return bucket.tokens_micro / MICRO + lent


def _granted(answered: Answer) -> int:
    return answered.grant.size if answered.grant is not None else 0


def _highest_ask(bucket: Bucket | None, member: str) -> int:
    return bucket.members[member].ask_no if bucket is not None and member in bucket.members else 0
