"""Costs that change after the fact, in several copies, with lost answers: the owner's books equal the record."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from enforcer.core.dials import epsilon_tokens
from enforcer.errors import OwnerUnavailable
from enforcer.messages import Answer, Ask, AskFault
from enforcer.owners.memory import MemoryOwner
from enforcer.types import Charge, Verdict
from tests.unit.enforcer.harness import Copy, Fleet, make_policy

COPIES = 3
STEPS = 80
COSTS = (0, 1, 1, 2, 5, 9)
#: Nothing to speak of is refilled, so that the books can be compared to the token.
RATE_PER_S = 1e-6
AMOUNTS = {"rate": 400, "site": 300, "hour": 250}

Key = tuple[str, str]


class History:
    """One random history of a fleet, and what it changed after the fact."""

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch, *, lost: Sequence[float]) -> None:
        self.chance = random.Random(seed)
        limits: dict[str, object] = {}
        if self.chance.random() < 0.5:
            limits["site"] = {"by": "everyone", "rate_per_s": RATE_PER_S, "burst": AMOUNTS["site"]}
        if self.chance.random() < 0.5:
            limits["hour"] = {"by": "everyone", "quota": AMOUNTS["hour"], "per": "hour"}
        policy = make_policy(rate_per_s=RATE_PER_S, burst=AMOUNTS["rate"], fleet={"copies": COPIES}, limits=limits)
        ahead_ms = self.chance.choice([0.0, 2.0])
        # A copy that forgets a caller forgets what it had given back to it.
        self.fleet = Fleet(policy, copies=COPIES, ask_ahead_above_ms=ahead_ms, evict_after_s=3_600)
        self.changed: Counter[Key] = Counter()
        self.lost = self.chance.choice(lost)
        self._is_losing = True
        self._open: list[tuple[Copy, Verdict]] = []
        ask = MemoryOwner.ask

        def answer(owner: MemoryOwner, asks: Sequence[Ask]) -> list[Answer | AskFault]:
            outcomes = ask(owner, asks)
            if self._is_losing and self.chance.random() < self.lost:
                raise OwnerUnavailable("the answer was lost", where="in memory")
            return outcomes

        monkeypatch.setattr(MemoryOwner, "ask", answer)

    def run(self) -> None:
        """All of it, to the close of every copy."""
        for _ in range(STEPS):
            self._step()
        self._is_losing = False
        self.fleet.advance(20)
        for copy in self.fleet.copies:
            copy.limiter.close()

    def check_books(self) -> None:
        """Of every bucket: what its owner has is what the decisions and the changes left of it."""
        spent, adjusted = Counter[Key](), Counter[Key]()
        for copy in self.fleet.copies:
            for (subject, limit, _), tokens in copy.sink.spent_by_grant().items():
                spent[subject, limit] += tokens
            for (subject, limit, _), total in copy.sink.final_totals().items():
                adjusted[subject, limit] += total.adjusted
        for key in spent.keys() | adjusted.keys():
            bucket = self.fleet.owner.bucket(*key)
            assert bucket is not None
            amount, is_quota = AMOUNTS[key[1]], key[1] == "hour"
            # A grant that no copy heard of comes back with the next ask, or when it expires.
            unheard = sum(one.size - one.spent for member in bucket.members.values() for one in member.open)
            left = bucket.tokens_micro / 1e6 + unheard
            if is_quota and self.lost:
                # Of a quota it counts as spent once it has expired.
                assert left <= amount - spent[key] - adjusted[key] + 0.01, key
            else:
                assert left == pytest.approx(amount - spent[key] - adjusted[key], abs=0.01), key
            assert self.changed[key] == adjusted[key] + self._owed(key), key
            beyond = 0.0 if is_quota else epsilon_tokens(amount, copies=COPIES, largest_cost=max(COSTS))
            assert 0 <= spent[key] + adjusted[key] <= amount + beyond, key

    def _owed(self, key: Key) -> int:
        accounts = [copy.limiter._directory.known(*key) for copy in self.fleet.copies]
        return sum(account.owed for account in accounts if account is not None)

    def _step(self) -> None:
        what, copy = self.chance.random(), self.chance.choice(self.fleet.copies)
        if what < 0.55:
            verdict = copy.limiter.check(self.chance.choice(["acme", "acme", "beta"]), cost=self.chance.choice(COSTS))
            if verdict.allowed:
                self._open.append((copy, verdict))
        elif what < 0.75 and self._open:
            copy, verdict = self._open.pop(self.chance.randrange(len(self._open)))
            self._change(copy, verdict, self.chance.choice([0, 0, verdict.cost + 1, verdict.cost + 5, 60]))
        else:
            self.fleet.advance(self.chance.choice([0.01, 0.1, 0.5, 1.5, 3]), step_s=0.25)

    def _change(self, copy: Copy, verdict: Verdict, cost: int) -> None:
        copy.limiter.charge(verdict, cost)
        first = Charge(verdict.basis.caller, verdict.basis.limit, verdict.basis.grant_id)
        for one in (first, *verdict.basis.also):
            if one.grant_id or verdict.cost == 0:
                self.changed[one.subject, one.limit] += cost - verdict.cost


@pytest.mark.parametrize("tens", range(15))
def test_changed_costs_leave_the_owners_books_equal_to_the_record(tens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger and the bucket stand on the same totals, whichever answers were lost on the way."""
    for seed in range(10 * tens, 10 * tens + 10):
        history = History(seed, monkeypatch, lost=(0.1, 0.3))
        history.run()
        history.check_books()
        monkeypatch.undo()


@pytest.mark.parametrize("tens", range(15))
def test_changed_costs_take_the_owner_from_nobody(tens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner that answers is never taken for lost, nor a bucket for unreadable, by what this copy composed."""
    for seed in range(1000 + 10 * tens, 1010 + 10 * tens):
        history = History(seed, monkeypatch, lost=(0.0,))
        history.run()
        history.check_books()
        for copy in history.fleet.copies:
            assert not copy.sink.changes
            assert not any(account.backoff.until_ns for account in copy.limiter._directory.accounts)
        monkeypatch.undo()
