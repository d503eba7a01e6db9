"""What an asker tells the sink of one copy: grants, totals that became final, warnings, and changes of state.

Called with the lock held, and never after the copy was closed. Says nothing of limits in shadow: no decision names
their grants, and nobody is to be warned of what is not enforced; what they would refuse is told as `WouldRefuse`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from enforcer.clock import Clock
from enforcer.core.account import Account
from enforcer.core.resolution import SHADOW
from enforcer.messages import Answer, SettleCause, Settlement
from enforcer.sink import DegradeChanged, GrantIssued, GrantSettled, Sink, SoftLimitReached

log = logging.getLogger("enforcer")
_Fact = TypeVar("_Fact")

#: A caller that swings around a soft limit is told of once in this time.
_WARN_EVERY_NS = 60_000_000_000


def hand(take: Callable[[_Fact], None], fact: _Fact) -> None:
    """Give one fact to a sink. One that fails loses its fact, never what the limiter is in the middle of."""
    try:
        take(fact)
    except Exception:
        log.exception("the sink did not take %r", fact, extra={"action": "sink_failed"})


class Reporting:
    """Facts of one member (``copy_id/epoch``)."""

    def __init__(self, sink: Sink, clock: Clock, *, member: str) -> None:
        self._sink = sink
        self._clock = clock
        self._member = member

    def closed(self, account: Account) -> None:
        """Tell of totals that became final."""
        totals = account.take_unreported()
        for total in () if _in_shadow(account) else totals:
            fact = GrantSettled(account.caller, account.limit, self._member, total, self._clock.unix_us())
            hand(self._sink.grant_settled, fact)

    def answered(self, account: Account, answer: Answer, now_ns: int) -> None:
        """Tell of what the owner lent, of what it gave back, and of a limit that is nearly used up."""
        if _in_shadow(account):
            return
        if answer.grant is not None:
            version = account.standing.terms.policy_version
            hand(
                self._sink.grant_issued,
                GrantIssued(account.caller, account.limit, version, answer.grant, answer.tokens),
            )
        # As all that is told: by this copy's clock. Whoever records it knows how far the owner's is from that.
        at_us = self._clock.unix_us()
        for credit in answer.credited:
            total = Settlement(credit.grant_id, credit.spent, False, SettleCause.CREDITED)
            fact = GrantSettled(account.caller, account.limit, credit.member, total, at_us)
            hand(self._sink.grant_settled, fact)
        if account.soft and now_ns >= account.warn_again_ns:
            account.warn_again_ns = now_ns + _WARN_EVERY_NS
            hand(
                self._sink.event,
                SoftLimitReached(
                    account.caller,
                    account.limit,
                    account.standing.terms.policy_version,
                    account.used_share,
                    account.k,
                    at_us,
                ),
            )

    def degraded(self, owner: str, *, entered: bool, cause: str) -> None:
        """Tell that this copy decides alone, or no longer does."""
        hand(self._sink.degrade_changed, DegradeChanged(owner, entered, cause, self._clock.unix_us()))


def _in_shadow(account: Account) -> bool:
    return account.limit.endswith(SHADOW)
