"""One copy that keeps the grant protocol, as a small pure model: what it holds, states and asks for.

Stands in for the enforcer's own account, so that the owner is tested against the protocol and not against one
implementation of it. Time and the owner are in the test's hand.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from enforcer.messages import Answer, Ask, SettleCause, Settlement
from enforcer.types import Grant, Plan

#: A copy holds at most this many grants of a bucket: the current and the next.
MOST_HELD = 2


@dataclass
class Held:
    """A grant in the copy's hands. `until_us` is by the copy's own clock, which never steps."""

    grant: Grant
    until_us: int
    spent: int = 0

    @property
    def left(self) -> int:
        """Tokens not yet spent."""
        return self.grant.size - self.spent


@dataclass
class ModelCopy:
    """A copy in one life. `offered` and `rate_per_s` are what it would report of itself."""

    name: str
    plan: Plan
    caller: str = "caller"
    epoch: int = 1
    ask_no: int = 0
    held: list[Held] = field(default_factory=list)
    finals: dict[int, Settlement] = field(default_factory=dict)
    last_size: int = 0
    offered: int = 0
    rate_per_s: float = 0.0
    refused_until_us: int = 0

    @property
    def member(self) -> str:
        """As k counts it."""
        return f"{self.name}/{self.epoch}"

    @property
    def left(self) -> int:
        """Tokens that it may spend without asking."""
        return sum(held.left for held in self.held)

    def want(self) -> int:
        """Rule 4 of the sizing: twice the last grant, up to two seconds of its own rate; one at first."""
        if self.last_size == 0:
            return 1
        return max(1, min(2 * self.last_size, round(2 * self.rate_per_s)))

    def drop_expired(self, real_us: int) -> None:
        """Stop spending what has expired, and state its total."""
        for held in [held for held in self.held if real_us >= held.until_us]:
            self._close(held, SettleCause.EXPIRY)

    def give_home(self) -> None:
        """State the totals of all grants, as on idle or close."""
        for held in list(self.held):
            self._close(held, SettleCause.IDLE)

    def spend(self, tokens: int) -> list[tuple[int, int]]:
        """Spend up to `tokens`, the oldest grant first: (grant_id, spent of it)."""
        spent = []
        for held in self.held:
            part = min(tokens, held.left)
            if part:
                held.spent += part
                tokens -= part
                spent.append((held.grant.grant_id, part))
        return spent

    def ask(self, *, waiting: int, want: int, jitter: float = 0.0) -> Ask:
        """The next ask. Names every grant that it holds, or has not seen acknowledged as final."""
        for held in [held for held in self.held if held.left == 0]:
            self._close(held, SettleCause.ASK)
        self.ask_no += 1
        open_totals = [
            Settlement(
                held.grant.grant_id, held.spent, False, SettleCause.ASK, held.grant.size, held.grant.expires_at_us
            )
            for held in self.held
        ]
        return Ask(
            caller=self.caller,
            limit="rate",
            plan=self.plan,
            member=self.member,
            ask_no=self.ask_no,
            settlements=(*self.finals.values(), *open_totals),
            waiting=waiting,
            want=want if len(self.held) < MOST_HELD else 0,
            rate_per_s=self.rate_per_s,
            offered=self.offered,
            jitter=jitter,
        )

    def receive(self, asked: Ask, answer: Answer, *, sent_real_us: int, real_us: int) -> None:
        """Take an answer that arrived in time: finals are acknowledged, the grant is held.

        `sent_real_us` is when the ask left: counting the expiry from there can only end it early.
        """
        for stated in asked.settlements:
            if stated.final:
                self.finals.pop(stated.grant_id, None)
        self.offered = 0
        self.refused_until_us = real_us + answer.refused_for_ms * 1_000
        if answer.grant is not None:
            lasts_us = answer.grant.expires_at_us - answer.owner_now_us
            self.held.append(Held(answer.grant, sent_real_us + lasts_us))
            self.last_size = answer.grant.size

    def restarted(self) -> ModelCopy:
        """Its next life, after a crash: all that it knew is gone, and the epoch is a new one."""
        return ModelCopy(self.name, self.plan, self.caller, self.epoch + 1)

    def _close(self, held: Held, cause: SettleCause) -> None:
        self.held.remove(held)
        self.finals[held.grant.grant_id] = Settlement(held.grant.grant_id, held.spent, True, cause)
