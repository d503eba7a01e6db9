"""What a request cost, known after the fact: charged to the limits that its verdict names, or given back to them.

It never decides about a request, and never looks at which limits the policy has now.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

from enforcer.core.once import MOST, Once
from enforcer.errors import InvalidField
from enforcer.limiting.arguments import validate_cost
from enforcer.limiting.askers import Askers
from enforcer.limiting.decisions import Decisions
from enforcer.limiting.directory import Directory
from enforcer.limiting.lane import Lane
from enforcer.limiting.life import Life
from enforcer.types import Charge, Verdict


class Charging(Decisions):
    """The part of an `Engine` that charges and refunds, at most once for a verdict."""

    _askers: Askers
    _changed: Once
    _directory: Directory
    _life: Life
    _lock: threading.Lock

    def charge(self, verdict: Verdict, cost: int) -> None:
        """Say what an admitted request really cost, once that is known: the rest is charged, or given back.

        A charge beyond what this copy holds is a debt, paid before the caller's next tokens here are spent; a refund is
        spent first. It changes the limits whose grants the verdict names: one of which this copy decided alone, because
        its owner was away, is not changed. A request that cost nothing at first is owed by all of its limits, to an
        owner that is away once it is back. Of a calendar quota nothing is given back once its period is over.

        Args:
            verdict: of this limiter, allowed, and not charged or refunded before. One of another limiter is told from
                its own only where it has a number that this one has not come to; one that was changed already, only if
                fewer than 16,384 others were since.
            cost: tokens in all, from 0.

        Raises:
            InvalidField: the verdict is a refusal, another limiter's, or was changed before; or `cost` is not of that
                form.
            EnforcerError: the limiter is closed.
        """
        if not verdict.allowed:
            raise InvalidField("verdict", "refused", "the verdict of an admitted request")
        validate_cost(cost)
        if cost == verdict.cost:
            return
        with self._lock:
            self._life.require()
            if verdict.seq >= self._seq:
                raise InvalidField("verdict", verdict.seq, f"a verdict of this limiter: 0 to {self._seq - 1}")
            self._charge(verdict, cost)

    def refund(self, verdict: Verdict) -> None:
        """Give back what an admitted request cost: it was not served. See `charge`."""
        self.charge(verdict, 0)

    def _charge(self, verdict: Verdict, cost: int) -> None:
        """See `charge`. With the lock held, while the limiter lives."""
        if not self._changed.is_first(verdict.seq):
            raise InvalidField("verdict", verdict.seq, f"one that is not among the last {MOST:,} changed: only once")
        delta = cost - verdict.cost
        changed = [self._adjust(verdict, charged, delta) for charged in _charged(verdict)]
        if any(changed):
            basis = verdict.basis
            self._askers.costs.count((basis.caller, basis.scope, "", 0), 1, max(0, delta), max(0, -delta))

    def _open_lane(self, caller: str, scope: str) -> Lane:
        self._life.require()
        return self._directory.open(caller, scope, self._now())

    def _adjust(self, verdict: Verdict, charged: Charge, delta: int) -> bool:
        """Whether it counts: not where the limit is neither known to this copy nor in the policy any more."""
        known = self._directory.known(charged.subject, charged.limit)
        if known is None:
            # Forgotten meanwhile: it comes back with the caller.
            self._open_lane(verdict.basis.caller, verdict.basis.scope)
            known = self._directory.known(charged.subject, charged.limit)
        return known is not None and self._askers.adjust(known, delta, charged.grant_id)


def _charged(verdict: Verdict) -> Iterator[Charge]:
    """The limits that a verdict names: by the grants that paid, not those of which this copy decided alone.

    What cost nothing needs no grant, and took nothing of this copy's own buckets: all of its limits are named.
    """
    basis = verdict.basis
    if basis.grant_id or verdict.cost == 0:
        yield Charge(basis.caller, basis.limit, basis.grant_id)
    yield from basis.also
