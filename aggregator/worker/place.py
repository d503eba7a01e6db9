"""A Faust app's place in its consumer group: waited for, not for ever, and left without harm to the others.

Never changes what is read or acknowledged. A member that was answered is left alone, though it was given no partition.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import faust

from aggregator.broker import LogUnavailable
from aggregator.group.joining import Joining
from aggregator.group.leader import put_out
from aggregator.group.view import GroupNow, GroupView

_POLL_S = 0.25
#: After so many times of saying that the group has not answered, a new process is to join it.
_SAYINGS = 3


class FaustPlace:
    """One app in one group. Its methods run on the app's event loop.

    Args:
        app: the app, before it is started.
        view: says how the group is.
        topic: what the app reads.
        session_timeout_ms: the group's.
        log: where it says what it waits for.
        now_s: a monotonic clock.
    """

    def __init__(
        self,
        app: faust.App,
        view: GroupView,
        topic: str,
        *,
        session_timeout_ms: int,
        log: logging.Logger,
        now_s: Callable[[], float],
    ) -> None:
        self._view = view
        self._topic = topic
        self._session_timeout_ms = session_timeout_ms
        self._log = log
        self._now_s = now_s
        self._joining = Joining(session_s=session_timeout_ms / 1000, now_s=now_s())
        self._suspect: str | None = None
        app.on_partitions_assigned.connect(self._assigned, weak=False)
        app.on_partitions_revoked.connect(self._revoked, weak=False)

    async def tend(self) -> str:
        """Watch over the place; returns once the group has not answered for so long that nothing but a new start helps.

        Returns:
            Why, in words.
        """
        said = 0
        while said < _SAYINGS:
            await asyncio.sleep(_POLL_S)
            if self._joining.joined:
                said, self._suspect = 0, None
            waited_s = self._joining.overdue_s(self._now_s())
            if waited_s is None:
                continue
            try:
                now = await asyncio.to_thread(self._view.look)
            except LogUnavailable as error:
                self._log.warning("no place in the group for %.0f s: %s; waiting for it", waited_s, error)
                continue
            said += 1
            await self._say(now, waited_s)
        return f"the group {self._view.group} does not answer; a new start joins it anew"

    async def may_leave(self, until_s: float) -> bool:
        """Whether leaving now does the group no harm; waits for that, up to a monotonic time."""
        while True:
            try:
                if not (await asyncio.to_thread(self._view.look)).forming:
                    return True
            except LogUnavailable:
                return False
            if self._now_s() >= until_s:
                return False
            await asyncio.sleep(_POLL_S)

    async def _assigned(self, *_: Any, **__: Any) -> None:
        self._joining.answered()

    async def _revoked(self, *_: Any, **__: Any) -> None:
        self._joining.lost(self._now_s())

    async def _say(self, now: GroupNow, waited_s: float) -> None:
        self._log.warning("no place in the group %s for %.0f s: it is %s", self._view.group, waited_s, now.said)
        # The client does not say which member this one is. A leader that has dealt out nothing twice is gone.
        leader, self._suspect = self._suspect, now.leader_other_than("")
        if leader is None or leader != self._suspect:
            return
        await asyncio.to_thread(
            put_out, self._view, leader, [self._topic], session_timeout_ms=self._session_timeout_ms, log=self._log
        )
