"""One node of a cluster: buckets that it says are elsewhere, or on their way there, are asked for where they are.

Followed within the same call, so that a slot that moves costs its callers a round trip and no verdict. It never decides
where buckets belong: an answer that was found elsewhere says so (`Answer.moved`), and the cluster looks again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from enforcer.core.backoff import Backoff
from enforcer.errors import OwnerUnavailable
from enforcer.messages import Answer, Ask, AskFault, Moved
from enforcer.owners.port import Owner

#: A stale node may name one that is giving the bucket away just now; more than two steps are no cluster's doing.
_STEPS = 2
_UNUSED_NS = 10_000_000_000


class Redirecting(Owner, Protocol):
    """An owner on one server of a cluster."""

    def ask_arriving(self, asks: Sequence[Ask]) -> Sequence[Answer | AskFault]:
        """As `ask`, for buckets in slots that are on their way to this node."""
        ...


class _Other:
    """A connection to another node, of this one's asker."""

    def __init__(self, owner: Redirecting) -> None:
        self.owner = owner
        self.used_ns = 0
        self.backoff = Backoff()


class ClusterNode:
    """Implements `Owner`. Called from one thread: its asker's."""

    def __init__(
        self,
        owner: Redirecting,
        *,
        other: Callable[[str, int], Redirecting],
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Take the owner on the node itself.

        Args:
            owner: on this node.
            other: the owner at host and port; an empty host is this node's own. Closed after ten unused seconds.
            monotonic_ns: for how long one that cannot be reached is left alone.
            jitter: uniform in [0, 1), likewise.
        """
        self._owner = owner
        self._other = other
        self._monotonic_ns, self._jitter = monotonic_ns, jitter
        self._others: dict[tuple[str, int], _Other] = {}

    def ask(self, asks: Sequence[Ask]) -> Sequence[Answer | AskFault]:
        """See `Owner.ask`; each step to another node may take as long again."""
        outcomes = list(self._owner.ask(asks))
        moved: set[int] = set()
        for _ in range(_STEPS):
            elsewhere = _by_place(outcomes)
            if not elsewhere:
                break
            for (host, port, arriving), places in elsewhere.items():
                moved.update(() if arriving else places)
                found = self._ask_there(host, port, [asks[place] for place in places], arriving=arriving)
                for place, outcome in zip(places, found, strict=True):
                    outcomes[place] = outcome
        for place in moved:
            outcome = outcomes[place]
            if isinstance(outcome, Answer):
                outcomes[place] = msgspec.structs.replace(outcome, moved=True)
        self._close_unused()
        return outcomes

    def probe(self) -> None:
        """See `Owner.probe`: of this node alone."""
        self._owner.probe()

    def close(self) -> None:
        """See `Owner.close`."""
        self._owner.close()
        for other in list(self._others.values()):
            other.owner.close()

    def _ask_there(self, host: str, port: int, asks: list[Ask], *, arriving: bool) -> Sequence[Answer | AskFault]:
        """Ask another node. One that cannot be reached is no failure of this one, and not tried each time."""
        now_ns = self._monotonic_ns()
        other = self._others.get((host, port))
        if other is None:
            other = self._others[host, port] = _Other(self._other(host, port))
        other.used_ns = now_ns
        if now_ns < other.backoff.until_ns:
            return [Moved(f"it is at {host}:{port}, which could not be reached")] * len(asks)
        try:
            found = other.owner.ask_arriving(asks) if arriving else other.owner.ask(asks)
        except OwnerUnavailable as error:
            other.backoff.faulted(self._monotonic_ns(), self._jitter())
            return [Moved(f"it is at {host}:{port}: {error.cause}")] * len(asks)
        other.backoff.mended()
        return found

    def _close_unused(self) -> None:
        if not self._others:
            return
        since_ns = self._monotonic_ns() - _UNUSED_NS
        for where in [where for where, other in self._others.items() if other.used_ns < since_ns]:
            self._others.pop(where).owner.close()


def _by_place(outcomes: Sequence[Answer | AskFault]) -> dict[tuple[str, int, bool], list[int]]:
    """Which of the outcomes are to be had elsewhere, by host, port, and whether the slot is still arriving there."""
    elsewhere: dict[tuple[str, int, bool], list[int]] = {}
    for place, outcome in enumerate(outcomes):
        if isinstance(outcome, Moved) and outcome.port:
            elsewhere.setdefault((outcome.host, outcome.port, outcome.arriving), []).append(place)
    return elsewhere
