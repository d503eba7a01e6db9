"""What one copy holds and knows of one caller's limit: grants, totals, its own rate, and how long to refuse alone.

Pure state: the time is an argument and nobody is asked here. All of it is called under the asker's lock; the limiter
spends from the lease by itself on its fast path.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from enforcer.core.degrade import Fallback, LocalBucket
from enforcer.core.lease import Lease
from enforcer.core.pace import Pace
from enforcer.types import MAX_RETRY_MS, Answer, Ask, Grant, SettleCause, Settlement, Standing, Terms

#: Stock covers this much of the copy's own rate (rule 4 of the sizing).
_STOCK_S = 2.0
#: Longest time for which a copy refuses a large cost by itself: tokens may come home from other copies meanwhile.
_ALONE_NS = 1_000_000_000
#: Largest number of waiting tokens that an ask can carry; more than any bucket holds.
_MOST_WAITING = (1 << 32) - 1
#: Waits before a bucket that could not be read is asked for again: the first, and the longest.
_FIRST_FAULT_NS, _LONGEST_FAULT_NS = 100_000_000, 10_000_000_000
#: Part of a grant that is left when the next one is asked for.
_LOW_WATER_DIVISOR = 4


class Account:
    """One copy's side of one bucket.

    Attributes:
        current, upcoming: the grant being spent, and the one asked for ahead.
        finals: final totals that the owner has not acknowledged; stated in every ask until it has.
        unreported: final totals that the sink has not been told of.
        local: this copy's own buckets, for when the owner is away.
        scopes: scopes under which the limiter knows this account.
        queued: whether the asker has it on its list.
        watched: whether the asker looks for it falling idle.
        evicted: whether the limiter has forgotten it; it must not be used any more.
        standing: the caller and its terms, as its verdicts name them.
        k, tokens: copies counted and tokens left at the owner, by its last answer; 0 and the burst before the first.
        touched_ns: when the copy last looked at it off the fast path.
        retry_at_ns: before then the owner is not asked, for it could not answer for this bucket; 0 if it could.
    """

    __slots__ = (
        "_as_of_ns", "_faults", "_offered_reported", "_open", "_pace", "_previous_size", "_refused", "_spent_closed",
        "caller", "current", "evicted", "finals", "k", "limit", "local", "plan", "queued", "retry_at_ns", "scopes",
        "standing", "tokens", "touched_ns", "unreported", "upcoming", "watched",
    )  # fmt: skip

    def __init__(self, caller: str, terms: Terms, *, now_ns: int) -> None:
        self.standing = Standing(caller, terms)
        self.caller = caller
        self.limit = terms.limit
        self.plan = terms.plan
        self.current = Lease(None, until_ns=0)
        self.upcoming: Lease | None = None
        self.finals: list[Settlement] = []
        self.unreported: list[Settlement] = []
        self.local: dict[Fallback, LocalBucket] = {}
        self.scopes: list[str] = []
        self.queued = False
        self.watched = False
        self.evicted = False
        self.k = 0
        self.tokens = float(terms.plan.burst)
        self.touched_ns = now_ns
        self.retry_at_ns = 0
        self._faults = 0
        self._open: list[Lease] = []
        self._spent_closed = 0
        self._refused = 0
        self._offered_reported = 0
        self._previous_size = 0
        self._as_of_ns = 0
        self._pace = Pace()

    def __str__(self) -> str:
        return f"the bucket of caller {self.caller!r}, limit {self.limit!r}"

    @property
    def spent(self) -> int:
        """Tokens of grants that this copy ever spent for the caller."""
        return self._spent_closed + sum(lease.spent for lease in self._open)

    @property
    def offered(self) -> int:
        """Tokens that this copy was ever asked for, admitted or not."""
        return self.spent + self._refused + self.current.refused

    @property
    def held(self) -> int:
        """Tokens in stock."""
        # A closed lease holds nothing, so these two are all there can be.
        upcoming = self.upcoming
        return self.current.held + upcoming.held if upcoming is not None else self.current.held

    @property
    def holds_grant(self) -> bool:
        """Whether a grant's total is still open."""
        return bool(self._open)

    @property
    def rate_per_s(self) -> float:
        """The copy's own smoothed spending for this caller."""
        return self._pace.rate_per_s

    def spend(self, cost: int, now_ns: int, *, past_expiry: bool = False) -> int:
        """Spend from `current`, or else from `upcoming`, which then becomes `current`.

        `past_expiry` is for when the owner cannot be asked: what was not stated as final is spent all the same.

        Returns:
            Tokens left in `current` after that, or -1 if neither held enough.
        """
        while True:
            lease = self.current
            # As on the fast path: no call between this read and the store, or two threads spend one token.
            left = lease.left - cost
            if left >= 0 and (past_expiry or now_ns < lease.until_ns):
                lease.left = left
                return left
            upcoming = self.upcoming
            if upcoming is None:
                return -1
            self._turn_to_upcoming(upcoming, SettleCause.ASK if now_ns < lease.until_ns else SettleCause.EXPIRY)

    def refuse(self, cost: int) -> None:
        """Count tokens that were asked for and not spent from a grant."""
        self._refused += cost

    def refused_until_ns(self, cost: int) -> int:
        """Until when this copy refuses such a request without asking; in the past if it may ask."""
        until = self.current.refused_until_ns
        if cost == 1:
            return until
        return max(until, min(self._ready_ns(cost), self._as_of_ns + _ALONE_NS))

    def retry_after_ms(self, cost: int, now_ns: int) -> int:
        """When a request that was just refused may be admitted, milliseconds, at least 1, never too early."""
        at_ns = self.current.refused_until_ns
        if cost > 1:
            at_ns = max(at_ns, self._ready_ns(cost))
        return max(1, -((now_ns - at_ns) // 1_000_000))

    def ask(self, *, ask_no: int, member: str, now_ns: int, jitter: float, waiting: Sequence[int], ahead: bool) -> Ask:
        """Compose the next question: all totals, what requests wait for, and what to hold in stock.

        Args:
            ask_no: above that of every earlier ask of this member.
            member: this copy in this life.
            now_ns: the copy's monotonic clock.
            jitter: uniform in [0, 1).
            waiting: costs of the requests that wait, oldest first.
            ahead: whether stock is wanted although nobody waits.
        """
        for lease in list(self._open):
            if now_ns >= lease.until_ns:
                self._close(lease, SettleCause.EXPIRY)
            elif lease.left <= 0 or (waiting and lease.left < waiting[0]):
                # What is too little for the first in line goes home, so that it comes back as part of one grant.
                self._close(lease, SettleCause.ASK)
        open_totals = [Settlement(_id(lease), lease.spent, False, SettleCause.ASK) for lease in self._open]
        self._pace.observe(self.spent, now_ns)
        return Ask(
            caller=self.caller,
            limit=self.limit,
            plan=self.plan,
            member=member,
            ask_no=ask_no,
            settlements=(*self.finals, *open_totals),
            waiting=min(sum(waiting), _MOST_WAITING),
            want=self._want() if waiting or (ahead and self.upcoming is None) else 0,
            rate_per_s=self.rate_per_s,
            offered=self.offered - self._offered_reported,
            jitter=jitter,
        )

    def answered(self, ask: Ask, answer: Answer, *, sent_ns: int, now_ns: int, ahead_on: bool) -> None:
        """Take in the owner's answer to `ask`.

        Args:
            ask: as composed by `ask`.
            answer: what the owner said.
            sent_ns: the copy's clock before the ask went out; grants expire by it, so never too late.
            now_ns: the copy's clock after the answer came; refusals count from it, so never end too early.
            ahead_on: whether the next grant is asked for before this one is spent.
        """
        stated = {settlement.grant_id for settlement in ask.settlements if settlement.final}
        self.finals = [settlement for settlement in self.finals if settlement.grant_id not in stated]
        self._offered_reported += ask.offered
        self.k = answer.k
        self.tokens = answer.tokens
        self._as_of_ns = now_ns
        if answer.grant is not None and answer.grant.size > 0:
            self._hold(answer.grant, sent_ns + (answer.grant.expires_at_us - answer.owner_now_us) * 1_000, ahead_on)
        newest = self.upcoming or self.current
        newest.refused_until_ns = 0
        if answer.refused_for_ms > 0:
            newest.refused_until_ns = now_ns + min(answer.refused_for_ms, MAX_RETRY_MS) * 1_000_000
            newest.low = 0

    def faulted(self, now_ns: int, jitter: float) -> bool:
        """The owner could not answer for this bucket: leave it alone for a while, longer each time.

        Args:
            now_ns: the copy's monotonic clock, after the fault.
            jitter: uniform in [0, 1); spreads the next asks of many copies.

        Returns:
            Whether it could answer the time before.
        """
        wait_ns = min(_LONGEST_FAULT_NS, _FIRST_FAULT_NS << min(self._faults, 20))
        self._faults += 1
        self.retry_at_ns = now_ns + int(wait_ns * (0.5 + 0.5 * jitter))
        return self._faults == 1

    def mended(self) -> bool:
        """The owner answered for this bucket. Returns whether it could not, the time before."""
        was_faulted = self._faults > 0
        self._faults = 0
        self.retry_at_ns = 0
        return was_faulted

    def close_all(self, cause: SettleCause, now_ns: int) -> bool:
        """Stop spending; every total becomes final. Returns whether any is owed to the owner."""
        for lease in list(self._open):
            self._close(lease, cause if now_ns < lease.until_ns else SettleCause.EXPIRY)
        return bool(self.finals)

    def take_unreported(self) -> list[Settlement]:
        """Final totals that were not taken before."""
        taken, self.unreported = self.unreported, []
        return taken

    def _hold(self, grant: Grant, until_ns: int, ahead_on: bool) -> None:
        lease = Lease(grant, until_ns=until_ns)
        lease.low = grant.size // _LOW_WATER_DIVISOR if ahead_on else 0
        self._open.append(lease)
        self._previous_size = grant.size
        if self.upcoming is not None:
            # Two can be reached, so the oldest goes home: its tokens would lie idle until it expires.
            self._turn_to_upcoming(self.upcoming, SettleCause.ASK)
        if self.current in self._open and self.current.left > 0:
            self.upcoming = lease
            # While another grant stands ready, the fast path must come and fetch it instead of refusing.
            self.current.refused_until_ns = 0
            return
        self._close(self.current, SettleCause.ASK)
        self._make_current(lease)

    def _turn_to_upcoming(self, upcoming: Lease, cause: SettleCause) -> None:
        self._close(self.current, cause)
        self.upcoming = None
        self._make_current(upcoming)

    def _make_current(self, lease: Lease) -> None:
        retired = self.current
        # Whoever still looks at the old lease must find nothing there, not even a refusal.
        retired.refused_until_ns = 0
        self._refused += retired.refused
        self.current = lease

    def _close(self, lease: Lease, cause: SettleCause) -> None:
        grant = lease.grant
        if grant is None or lease not in self._open:
            return
        # No call between the read and the store: from here on nobody can spend it.
        left = lease.left
        lease.left = 0
        if left < 0:
            self._refused -= left
            left = 0
        total = Settlement(grant.grant_id, grant.size - left, True, cause)
        self._open.remove(lease)
        self._spent_closed += total.spent
        self.finals.append(total)
        self.unreported.append(total)
        if lease is self.upcoming:
            self.upcoming = None

    def _want(self) -> int:
        if self._previous_size == 0:
            return 1
        return min(int(self.rate_per_s * _STOCK_S), 2 * self._previous_size)

    def _ready_ns(self, cost: int) -> int:
        """When the bucket would hold `cost` tokens if nobody else took any."""
        missing = cost - self.held - self.tokens
        if self._as_of_ns == 0 or missing <= 0:
            return 0
        return self._as_of_ns + math.ceil(missing * 1e9 / self.plan.rate_per_s)


def _id(lease: Lease) -> int:
    return lease.grant.grant_id if lease.grant is not None else 0
