"""What one copy knows of one bucket: what it holds there, its own rate, what to ask for, how long to refuse alone.

Pure state: the time is an argument and nobody is asked here. All of it is called under the asker's lock; the limiter
spends from the lease by itself on its fast path.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from enforcer.core.backoff import Backoff
from enforcer.core.degrade import Fallback, LocalBucket
from enforcer.core.holding import Holding
from enforcer.core.pace import Pace
from enforcer.core.resolution import Due
from enforcer.core.rooms import notice_of
from enforcer.core.sizing import MICRO, ROUNDING
from enforcer.messages import Answer, Ask
from enforcer.types import MAX_RETRY_MS, Standing

#: Stock covers this much of the copy's own rate (rule 4 of the sizing).
STOCK_S = 2.0
#: Time between two asks for a debt, unless its owner said to wait longer, and how late one may be.
CHASE_S, LATE_S = 0.5, 0.25
#: Longest time for which a copy refuses a large cost by itself: tokens may come home from other copies meanwhile.
_ALONE_NS = 1_000_000_000
#: The same for one token, though the owner named a later moment: it may be mended, or be given tokens back, meanwhile.
_ALONE_ONE_NS = 30_000_000_000
#: Largest number of tokens that an ask can name; more than any bucket holds.
_MOST_TOKENS = (1 << 32) - 1


class Account(Holding):
    """One copy's side of one bucket: what it holds, and what it knows.

    Attributes:
        due: the limit, and what it is held to by the policy in force.
        node: name of the owner that holds the bucket.
        local: this copy's own buckets, for when the owner is away.
        lanes: (caller, scope) under which the limiter knows this account.
        queued: whether the asker has it on its list.
        watched: whether the asker looks for it falling idle.
        chased: whether the asker looks for its debt being payable.
        evicted: whether the limiter has forgotten it; it must not be used any more.
        moves: how often its bucket came to another node; what was noted of it there before is of no use.
        standing: the caller and its terms, as its verdicts name them.
        notice: of its terms, for what clients are told.
        k, tokens: copies counted and tokens left at the owner, by its last answer; 0 and the burst before the first.
        soft: whether so much of the limit was used, by the last answer, that its caller is to be warned.
        warn_again_ns: before then the sink is not told again that it is soft.
        touched_ns: when the copy last looked at it off the fast path.
        backoff: how long the owner is not asked, because it could not answer for this bucket.
    """

    __slots__ = (
        "_as_of_ns", "_credited_id", "_offered_reported", "_pace", "_since_us", "_turn_ns", "_unasked_until_ns",
        "backoff", "caller", "chased", "due", "evicted", "k", "lanes", "limit", "local", "moves", "node", "notice",
        "plan", "queued", "soft", "standing", "tokens", "touched_ns", "warn_again_ns", "watched",
    )  # fmt: skip

    def __init__(self, due: Due, *, now_ns: int, node: str = "") -> None:
        super().__init__()
        self._go_by(due)
        self.caller = due.subject
        self.limit = due.terms.limit
        self.node = node
        self.local: dict[Fallback, LocalBucket] = {}
        self.lanes: set[tuple[str, str]] = set()
        self.queued = False
        self.watched = False
        self.chased = False
        self.evicted = False
        self.moves = 0
        self.k = 0
        self.tokens = float(self.plan.burst)
        self.soft = False
        self.warn_again_ns = 0
        self.touched_ns = now_ns
        self.backoff = Backoff()
        self._offered_reported = 0
        self._as_of_ns = 0
        self._credited_id = 0
        self._since_us = 0
        self._turn_ns = 0
        self._unasked_until_ns = 0
        self._pace = Pace()

    def turn_to(self, due: Due) -> None:
        """Go by another version of the policy: what is held stays, the next ask is on the new terms.

        How long to refuse was said on the old ones: where they differ, the next request asks.
        """
        old, new = self.due.terms, due.terms
        self._go_by(due)
        if (old.plan, old.per) == (new.plan, new.per):
            return
        for lease in (self.current, self.upcoming):
            if lease is not None:
                lease.may_ask()
        if old.per != new.per:
            self._turn_ns = 0
        elif due.per is not None:
            # As the owner will reckon it: what was used stays used.
            self.tokens += new.plan.burst - old.plan.burst

    def _go_by(self, due: Due) -> None:
        self.due = due
        self.plan = due.terms.plan
        self.standing = Standing(due.subject, due.terms)
        self.notice = notice_of(due.terms)

    def __str__(self) -> str:
        return f"the bucket of caller {self.caller!r}, limit {self.limit!r}"

    @property
    def rate_per_s(self) -> float:
        """The copy's own smoothed spending for this caller."""
        return self._pace.rate_per_s

    @property
    def used_share(self) -> float:
        """How much of the limit is used, by the owner's last answer: 0 none, 1 all."""
        return min(1.0, max(0.0, 1 - (self.tokens + self.held) / self.plan.burst))

    def left_at_owner(self, now_ns: int) -> float:
        """Tokens in the bucket by the owner's last answer, and refilled since; all of them before the first."""
        if self._as_of_ns == 0 or now_ns >= self._turn_ns > 0:
            return float(self.plan.burst)
        refilled = 0.0 if self._turn_ns else (now_ns - self._as_of_ns) * self.plan.rate_per_s / 1e9
        return max(0.0, self.tokens) + refilled

    def local_bucket(self, kind: Fallback, now_ns: int) -> LocalBucket:
        """This copy's own bucket of that kind, for when the owner is away."""
        bucket = self.local.get(kind)
        if bucket is None:
            bucket = self.local[kind] = LocalBucket(now_ns, kind, left=self.left_at_owner(now_ns))
        return bucket

    @property
    def turn_ns(self) -> int:
        """When a quota starts anew, by this copy's monotonic clock, never too early; 0 if nobody has said so."""
        return self._turn_ns

    def refused_until_ns(self, cost: int, *, alone: bool = False) -> int:
        """Until when this copy refuses such a request without asking; in the past if it may ask.

        `alone`: there is nobody to ask, so that what was said last holds to its end.
        """
        told = self.current.ready_at_ns if alone else self.current.refused_until_ns
        until = max(told, self._unasked_until_ns)
        if cost == 1:
            return until
        return max(until, min(self._ready_ns(cost), self._as_of_ns + _ALONE_NS))

    def retry_at_ns(self, cost: int) -> int:
        """When a request that was just refused may be admitted, by this copy's monotonic clock, never too early."""
        at_ns = max(self.current.ready_at_ns, self._unasked_until_ns)
        return max(at_ns, self._ready_ns(cost)) if cost > 1 or self.owed > 0 else at_ns

    def retry_after_ms(self, cost: int, now_ns: int) -> int:
        """The same as a wait: milliseconds, at least 1."""
        return max(1, -((now_ns - self.retry_at_ns(cost)) // 1_000_000))

    def level(self) -> None:
        """See `Holding.level`. While a debt is left, no refusal may go without it: the fast path knows of none."""
        super().level()
        if self.owed > 0:
            lease = self.current
            self._unasked_until_ns = max(self._unasked_until_ns, lease.refused_until_ns)
            lease.refused_until_ns = 0

    def ask(
        self,
        *,
        ask_no: int,
        member: str,
        now_ns: int,
        jitter: float,
        waiting: Sequence[int],
        ahead: bool,
        turns: tuple[int, ...] = (),
    ) -> Ask:
        """Compose the next question: all totals, what requests wait for, and what to hold in stock.

        Args:
            ask_no: above that of every earlier ask of this member.
            member: this copy in this life.
            now_ns: the copy's monotonic clock.
            jitter: uniform in [0, 1).
            waiting: costs of the requests that wait, oldest first.
            ahead: whether stock is wanted although nobody waits.
            turns: when a quota starts anew, around the owner's present, unix microseconds; none for a bucket.
        """
        self._close_spent(waiting[0] if waiting else 0, now_ns)
        self._pace.observe(self.taken, now_ns)
        owed = max(0, self.owed)
        return Ask(
            caller=self.caller,
            limit=self.limit,
            plan=self.plan,
            member=member,
            ask_no=ask_no,
            settlements=(*self.finals, *self._state_open()),
            waiting=min(sum(waiting) + owed, _MOST_TOKENS),
            want=self._want() if waiting or owed or (ahead and self.upcoming is None) else 0,
            rate_per_s=self.rate_per_s,
            # Two asks that were under way at once have both reported the same.
            offered=max(0, self.offered - self._offered_reported),
            jitter=jitter,
            turns=turns,
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
        self._acknowledge({settlement.grant_id for settlement in ask.settlements if settlement.final})
        self._offered_reported += ask.offered
        self.k = answer.k
        self.tokens = answer.tokens
        self._as_of_ns = now_ns
        on_old_terms = ask.plan != self.plan or bool(ask.turns) != (self.due.per is not None)
        if ask.turns and not on_old_terms:
            turn_us = min((turn for turn in ask.turns if turn > answer.owner_now_us), default=answer.owner_now_us)
            self._turn_ns = now_ns + (turn_us - answer.owner_now_us) * 1_000
            self._begin(max((turn for turn in ask.turns if turn <= answer.owner_now_us), default=0))
        if answer.grant is not None and answer.grant.size > 0:
            self._hold(answer.grant, sent_ns + (answer.grant.expires_at_us - answer.owner_now_us) * 1_000, ahead_on)
        self.soft = answer.tokens + self.held <= self.due.soft_tokens
        for kind, bucket in self.local.items():
            bucket.lower(kind, self.left_at_owner(now_ns), now_ns)
        newest = self.upcoming or self.current
        told_ns = newest.ready_at_ns
        newest.may_ask()
        self._unasked_until_ns = 0
        if answer.refused_for_ms > 0 and not on_old_terms:
            ready_ns = now_ns + min(answer.refused_for_ms, MAX_RETRY_MS) * 1_000_000
            # Totals that went home by themselves draw a new pause: it must not outlast what callers were told before,
            # unless the tokens do not suffice by then.
            keeps = not ask.waiting and max(now_ns, self._ready_ns(1)) <= told_ns < ready_ns
            newest.ready_at_ns = told_ns if keeps else ready_ns
            newest.refused_until_ns = min(newest.ready_at_ns, now_ns + _ALONE_ONE_NS)
            newest.low = 0

    def takes_back(self, grant_id: int, now_ns: int) -> bool:
        """Whether tokens that were spent of this grant may be given back now: those of a quota only in its period."""
        if self.due.per is None:
            return True
        # Ids of grants rise with the owner's clock, and lie in their period.
        if grant_id < self._since_us or now_ns >= self._turn_ns > 0:
            return False
        self._credited_id = min(self._credited_id, grant_id) if self.owed < 0 else grant_id
        return True

    def _begin(self, start_us: int) -> None:
        """Take note of when a quota's present period began; what was given back of an earlier one is void."""
        self._since_us = max(self._since_us, start_us)
        if self.owed < 0 and self._credited_id < self._since_us:
            self.owed = 0

    def _want(self) -> int:
        if self._previous_size == 0:
            return 1
        return min(int(self.rate_per_s * STOCK_S), 2 * self._previous_size, _MOST_TOKENS)

    def _ready_ns(self, cost: int) -> int:
        """When the bucket would hold `cost` tokens, and a debt, if nobody else took any; a quota as it starts anew."""
        owed, plan = max(0, self.owed), self.plan
        missing = cost + owed - self.held - self.tokens
        if self._as_of_ns == 0 or missing <= 0:
            return 0
        if self._turn_ns:
            periods = math.ceil((cost + owed) / plan.burst) - 1
            return self._turn_ns + math.ceil(periods * plan.burst * 1e9 / plan.rate_per_s)
        # A debt is paid by one bucketful in the time between two asks for it, at most.
        between_s = max(CHASE_S, 1 / plan.rate_per_s) + LATE_S if owed else 0.0
        # Less what the owner forgives: the last bits of a fraction must not be a wait of their own.
        missing = max(0.0, missing - ROUNDING / MICRO)
        return self._as_of_ns + math.ceil(missing * 1e9 * max(1 / plan.rate_per_s, between_s / plan.burst))
