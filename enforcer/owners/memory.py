"""An owner in this process, on the pure specification: for one process alone, and the shipped fake in tests.

Keeps nothing beyond the process and never talks to another; copies in several processes need `RedisOwner`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock

from enforcer.core.asks import check_ask
from enforcer.core.bucket import answer
from enforcer.core.dials import DEFAULT_DIALS, Dials
from enforcer.core.quota import OutsideCalendar
from enforcer.core.state import Bucket
from enforcer.errors import OwnerUnavailable
from enforcer.messages import Answer, Ask, AskFault

#: Asks between two looks for buckets that would be full by now.
_SWEEP_EVERY = 4096


class MemoryOwner:
    """Implements `Owner` on a dictionary. Several limiters may share it; the first that closes, closes it.

    Attributes:
        away: None, or why every call raises `OwnerUnavailable`: an outage for tests and demonstrations.
        spoiled: buckets, by (caller, limit), that cannot be read, and why: a fault of one bucket, for the same.
    """

    def __init__(self, *, now_us: Callable[[], int], dials: Dials = DEFAULT_DIALS) -> None:
        """Start empty: every caller's bucket is full.

        Args:
            now_us: the owner's clock, unix microseconds. It may step; it is the only clock that refills.
            dials: how to lend.
        """
        self.away: str | None = None
        self.spoiled: dict[tuple[str, str], str] = {}
        self._now_us = now_us
        self._dials = dials
        self._buckets: dict[tuple[str, str], Bucket] = {}
        self._asked = 0
        self._closed = False
        self._lock = Lock()

    @property
    def address(self) -> str:
        """Where it is, for events and messages."""
        return "memory"

    def ask(self, asks: Sequence[Ask]) -> list[Answer | AskFault]:
        """See `Owner.ask`.

        Raises:
            OwnerUnavailable: it is `away`, or closed.
            InvalidField: an ask is malformed; none of them has taken effect.
        """
        self.probe()
        for ask in asks:
            check_ask(ask)
        with self._lock:
            return [self._answer(ask) for ask in asks]

    def probe(self) -> None:
        """See `Owner.probe`."""
        if self._closed:
            raise OwnerUnavailable("it is closed", where="in memory")
        if self.away is not None:
            raise OwnerUnavailable(f"it is away: {self.away}", where="in memory")

    def close(self) -> None:
        """See `Owner.close`."""
        self._closed = True

    def lose_state(self) -> None:
        """Forget every bucket, as a restarted server does."""
        with self._lock:
            self._buckets.clear()

    def bucket(self, caller: str, limit: str) -> Bucket | None:
        """The state of one bucket, for tests and pages; None if it is not known. Must not be changed."""
        return self._buckets.get((caller, limit))

    def _answer(self, ask: Ask) -> Answer | AskFault:
        where = (ask.caller, ask.limit)
        if where in self.spoiled:
            return AskFault(self.spoiled[where])
        now_us = self._now_us()
        self._asked += 1
        if self._asked % _SWEEP_EVERY == 0:
            self._sweep(now_us)
        known = self._buckets.get(where)
        if known is not None and now_us >= known.forget_at_us:
            known = None
        try:
            self._buckets[where], answered = answer(known, ask, now_us, self._dials)
        except OutsideCalendar as outside:
            return outside.fault
        return answered

    def _sweep(self, now_us: int) -> None:
        """Let go of full buckets, as the server does by key expiry."""
        for where in [where for where, known in self._buckets.items() if now_us >= known.forget_at_us]:
            del self._buckets[where]
