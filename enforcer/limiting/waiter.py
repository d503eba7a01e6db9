"""One request that waits for owners, in a thread or in an event loop. It decides nothing."""

from __future__ import annotations

import asyncio
import threading

from enforcer.core.account import Account
from enforcer.limiting.lane import Lane
from enforcer.types import Verdict


class Waiter:
    """A request in the line of one or more accounts.

    `verdict` and `gone` change under the limiter's lock: either an asker decides, or the request gives up, never both.

    Attributes:
        lane, cost: what is to be decided.
        counted: accounts whose ask under way, or answered, is for this request too.
        lined: accounts in whose line it stands.
        since_ns: when it came, by the copy's monotonic clock.
        loop: the event loop in which it waits; None in a thread.
        in_shadow: the one account that is only asked what it would refuse; nobody waits then.
    """

    __slots__ = (
        "_event", "_future", "cost", "counted", "gone", "in_shadow", "lane", "lined", "loop", "since_ns", "verdict",
    )  # fmt: skip

    def __init__(
        self,
        lane: Lane,
        cost: int,
        loop: asyncio.AbstractEventLoop | None,
        *,
        since_ns: int = 0,
        in_shadow: Account | None = None,
    ) -> None:
        self.lane = lane
        self.cost = cost
        self.counted: set[Account] = set()
        self.lined: set[Account] = set()
        self.gone = False
        self.verdict: Verdict | None = None
        self.since_ns = since_ns
        self.loop = loop
        self.in_shadow = in_shadow
        self._event = threading.Event() if loop is None and in_shadow is None else None
        self._future: asyncio.Future[None] | None = loop.create_future() if loop is not None else None

    @property
    def is_over(self) -> bool:
        """Whether it needs no decision any more."""
        return self.gone or self.verdict is not None

    def wake(self) -> None:
        """Let the request go on; in a loop's own thread if it waits in a loop."""
        if self._event is not None:
            self._event.set()
        elif self._future is not None and not self._future.done():
            self._future.set_result(None)

    def wait(self, timeout_s: float) -> None:
        """Block this thread until woken, at most `timeout_s`."""
        if self._event is not None:
            self._event.wait(timeout_s)

    async def wait_async(self, timeout_s: float) -> None:
        """Wait in the loop until woken, at most `timeout_s`."""
        if self._future is not None:
            await asyncio.wait((self._future,), timeout=timeout_s)
