"""However asks, answers, spending and time interleave: what was granted was spent, returned, or can be spent."""

from __future__ import annotations

from collections import deque

from hypothesis import example, given
from hypothesis import strategies as st

from enforcer.core.account import Account
from enforcer.core.asks import check_ask
from enforcer.core.resolution import Due
from enforcer.messages import Answer, Ask, SettleCause
from enforcer.types import Grant, Plan, Terms

S = 1_000_000_000
TERMS = Terms("rate", Plan("standard", 100.0, 200), 1)

_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("spend"), st.integers(1, 6), st.booleans()),
        st.tuples(st.just("ask"), st.integers(0, 6), st.booleans()),
        st.tuples(st.just("trip"), st.integers(1, 20), st.booleans()),
        st.tuples(st.just("answer"), st.integers(0, 20), st.booleans()),
        st.tuples(st.just("lose"), st.just(0), st.just(False)),
        st.tuples(st.just("wait"), st.integers(1, 30), st.just(False)),
        st.tuples(st.just("idle"), st.just(0), st.just(False)),
        st.tuples(st.just("charge"), st.integers(1, 30), st.just(False)),
        st.tuples(st.just("refund"), st.integers(1, 30), st.just(False)),
    ),
    min_size=15,
    max_size=60,
)


class _Books:
    """An account, and what is true of it."""

    def __init__(self) -> None:
        self.account = Account(Due("acme", TERMS, None, "", -1.0, "default_plan"), now_ns=S)
        self.now_ns = S
        self.under_way: deque[tuple[Ask, int]] = deque()
        self.granted: dict[int, int] = {}
        self.final: dict[int, int] = {}
        self.spent = 0
        self.changed = 0
        self.offered = 0
        self._ask_no = 0

    def spend(self, cost: int, fast: bool) -> None:
        """Off the fast path, or on it."""
        lease = self.account.current
        if not fast:
            self.spent += cost if self.account.spend(cost, self.now_ns) >= 0 else 0
        elif lease.left >= cost and self.now_ns < lease.until_ns:
            lease.left -= cost
            self.spent += cost

    def change(self, tokens: int) -> None:
        """Charge after the fact, or give back, but no more than was spent."""
        tokens = max(tokens, -(self.spent + self.changed))
        self.changed += tokens
        self.account.adjust(tokens)

    def ask(self, waiting: int, ahead: bool) -> None:
        """Several may be under way: round trips are slow."""
        self._ask_no += 1
        costs = [waiting] if waiting else []
        ask = self.account.ask(
            ask_no=self._ask_no, member="a/1", now_ns=self.now_ns, jitter=0.5, waiting=costs, ahead=ahead
        )
        check_ask(ask)
        self.under_way.append((ask, self.now_ns))

    def answer(self, size: int, ahead_on: bool) -> None:
        """To the oldest ask under way."""
        if not self.under_way:
            return
        ask, sent_ns = self.under_way.popleft()
        grant = Grant(len(self.granted) + 1, size, 1, 0, 5_000_000) if size else None
        if grant is not None:
            self.granted[grant.grant_id] = size
        answer = Answer(grant, 1, 50.0, 0 if size else 10, 0, ())
        self.account.answered(ask, answer, sent_ns=sent_ns, now_ns=self.now_ns, ahead_on=ahead_on)
        self.account.level()

    def check(self) -> None:
        """Every token of every grant is somewhere, once."""
        for total in self.account.take_unreported():
            assert total.grant_id not in self.final
            assert 0 <= total.spent <= self.granted[total.grant_id]
            self.final[total.grant_id] = total.spent
        returned = sum(self.granted[grant_id] - spent for grant_id, spent in self.final.items())
        paid = self.spent + self.changed - self.account.owed
        assert sum(self.granted.values()) == paid + returned + self.account.held
        assert paid == self.account.spent
        assert self.offered <= self.account.offered
        self.offered = self.account.offered


@given(_STEPS)
@example([("trip", 5, False)] * 3)
@example(
    [
        ("trip", 9, False),
        ("spend", 6, False),
        ("ask", 0, True),
        ("answer", 0, False),
        ("refund", 6, False),
        ("ask", 1, True),
    ]
)
@example([("ask", 0, True)] * 3 + [("answer", 5, True), ("spend", 2, False)] * 3)
def test_granted_is_spent_or_returned_or_held(steps: list[tuple[str, int, bool]]) -> None:
    """A grant that nobody can reach keeps its tokens from the caller until it expires."""
    books = _Books()
    for what, number, flag in steps:
        if what == "spend":
            books.spend(number, flag)
        elif what == "ask":
            books.ask(number, flag)
        elif what == "trip":
            books.ask(0, True)
            books.answer(number, flag)
        elif what == "answer":
            books.answer(number, flag)
        elif what == "lose" and books.under_way:
            books.under_way.popleft()
        elif what == "wait":
            books.now_ns += number * S // 5
        elif what in {"charge", "refund"}:
            books.change(number if what == "charge" else -number)
        elif what == "idle":
            books.account.close_all(SettleCause.IDLE, books.now_ns)
        books.check()
    books.account.close_all(SettleCause.CLOSE, books.now_ns)
    books.check()
    assert 0 == books.account.held
    assert books.granted.keys() == books.final.keys()
