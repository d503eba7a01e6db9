"""The grants of one bucket in a copy's hands: spent, given back, closed; every total stated until it is acknowledged.

Pure state: the time is an argument. All of it is called under the asker's lock; the limiter spends from a lease by
itself on its fast path.
"""

from __future__ import annotations

from enforcer.core.lease import Lease
from enforcer.messages import SettleCause, Settlement
from enforcer.types import Grant

#: Part of a grant that is left when the next one is asked for.
_LOW_WATER_DIVISOR = 4


class Holding:
    """Leases, and the totals that became final.

    Attributes:
        current, upcoming: the grant being spent, and the one asked for ahead.
        finals: final totals that the owner has not acknowledged; stated in every ask until it has.
        unreported: final totals that the sink has not been told of.
        owed: tokens charged after the fact that no grant has paid yet; below 0, refunded ones that no grant took back.
    """

    __slots__ = ("_open", "_previous_size", "_refunded", "_refused", "_spent_closed", "current", "finals", "owed",
                 "unreported", "upcoming")  # fmt: skip

    def __init__(self) -> None:
        self.current = Lease(None, until_ns=0)
        self.upcoming: Lease | None = None
        self.finals: list[Settlement] = []
        self.unreported: list[Settlement] = []
        self.owed = 0
        self._open: list[Lease] = []
        self._previous_size = 0
        self._spent_closed = 0
        self._refunded = 0
        self._refused = 0

    @property
    def spent(self) -> int:
        """Tokens of grants that this copy ever spent for the caller, less those that were refunded."""
        return self._spent_closed + sum(lease.spent for lease in self._open)

    @property
    def taken(self) -> int:
        """The same with those that were refunded: what was asked for stays asked for, so this never falls."""
        return self.spent + self._refunded

    @property
    def offered(self) -> int:
        """Tokens that this copy was ever asked for, admitted or not."""
        return self.taken + self._refused + self.current.refused

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

    def refuse(self, cost: int) -> None:
        """Count tokens that were asked for and not spent from a grant."""
        self._refused += cost

    def covers(self, cost: int, now_ns: int, *, past_expiry: bool = False) -> bool:
        """Whether `spend` would find that many tokens."""
        for lease in (self.current, self.upcoming):
            if lease is not None and lease.left >= cost and (past_expiry or now_ns < lease.until_ns):
                return True
        return cost == 0

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

    def unspend(self, cost: int) -> None:
        """Take back what `spend` just took from `current`; no ask was composed since."""
        self._refused += self.current.give_back(cost)

    def adjust(self, delta: int) -> None:
        """Charge tokens after the fact, or give some back if `delta` is below 0.

        What the current grant cannot take is `owed`, and settled with the grants to come.
        """
        self.owed += delta
        self.level()

    def level(self) -> None:
        """Settle as much of `owed` as the current grant can."""
        lease = self.current
        if self.owed == 0 or lease not in self._open:
            return
        if self.owed > 0:
            # No call between the read and the store: the fast path spends from it meanwhile.
            left = lease.left
            lease.left = left - self.owed if left > self.owed else 0 if left > 0 else left
            change = min(self.owed, max(0, left))
        else:
            change = -min(-self.owed, lease.spent)
            if change:
                self._refused += lease.give_back(-change)
                self._refunded -= change
        lease.adjusted += change
        self.owed -= change

    def close_all(self, cause: SettleCause, now_ns: int) -> bool:
        """Stop spending; every total becomes final. Returns whether any is owed to the owner."""
        for lease in list(self._open):
            self._close(lease, cause if now_ns < lease.until_ns else SettleCause.EXPIRY)
        return bool(self.finals)

    def take_unreported(self) -> list[Settlement]:
        """Final totals that were not taken before."""
        taken, self.unreported = self.unreported, []
        return taken

    def _close_spent(self, first_waiting: int, now_ns: int) -> None:
        """Close what has expired, is spent, or is too little for the first request in line."""
        for lease in list(self._open):
            if now_ns >= lease.until_ns:
                self._close(lease, SettleCause.EXPIRY)
            elif lease.left <= 0 or lease.left < first_waiting:
                # What is too little for the first in line goes home, so that it comes back as part of one grant.
                self._close(lease, SettleCause.ASK)

    def _state_open(self) -> list[Settlement]:
        """The totals so far of the grants that are held."""
        totals = []
        for lease in self._open:
            grant = lease.grant
            if grant is not None:
                # With all that an owner needs which has lost its state: it takes in what is held before it lends.
                totals.append(
                    Settlement(grant.grant_id, lease.spent, False, SettleCause.ASK, grant.size, grant.expires_at_us)
                )
        return totals

    def _acknowledge(self, stated: set[int]) -> None:
        self.finals = [settlement for settlement in self.finals if settlement.grant_id not in stated]

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
            self.current.may_ask()
            return
        self._close(self.current, SettleCause.ASK)
        self._make_current(lease)

    def _turn_to_upcoming(self, upcoming: Lease, cause: SettleCause) -> None:
        self._close(self.current, cause)
        self.upcoming = None
        self._make_current(upcoming)
        # A debt comes before whatever is new.
        self.level()

    def _make_current(self, lease: Lease) -> None:
        retired = self.current
        # Whoever still looks at the old lease must find nothing there, not even a refusal.
        retired.may_ask()
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
        total = Settlement(grant.grant_id, grant.size - left, True, cause, adjusted=lease.adjusted)
        self._open.remove(lease)
        self._spent_closed += total.spent
        self.finals.append(total)
        self.unreported.append(total)
        if lease is self.upcoming:
            self.upcoming = None
