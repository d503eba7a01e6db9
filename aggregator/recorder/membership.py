"""The recorder's place in its consumer group: joins, notices when that is never answered, joins anew, leaves.

Never reads, and never commits. A member that was answered is left alone, though it was given no partition:
it stands by.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from confluent_kafka import Consumer, TopicPartition

from aggregator.broker import LogUnavailable
from aggregator.group.joining import Joining
from aggregator.group.leader import put_out
from aggregator.group.view import GroupNow, GroupView

_POLL_S = 0.1
_MESSAGES = 64


class Membership:
    """One place in one group. Used by one thread, but `may_leave`, which follows everything else.

    Args:
        make: makes a consumer that is not subscribed yet.
        view: says how the group is.
        topics: what to read.
        session_timeout_ms: the group's.
        on_revoked: called inside the consumer's own calls, when partitions were taken away.
        log: where it says what it waits for.
        now_s: a monotonic clock.
    """

    def __init__(
        self,
        make: Callable[[], Consumer],
        view: GroupView,
        topics: Sequence[str],
        *,
        session_timeout_ms: int,
        on_revoked: Callable[[], None],
        log: logging.Logger,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make = make
        self._view = view
        self._topics = list(topics)
        self._session_timeout_ms = session_timeout_ms
        self._on_revoked = on_revoked
        self._log = log
        self._now_s = now_s
        self._joining = Joining(session_s=session_timeout_ms / 1000, now_s=now_s())
        self.consumer = self._join()

    def tend(self) -> None:
        """Join anew if the group has not answered for too long; called before each read."""
        waited_s = self._joining.overdue_s(self._now_s())
        if waited_s is None:
            return
        try:
            now = self._view.look()
        except LogUnavailable as error:
            self._log.warning("no place in the group for %.0f s: %s; waiting for it", waited_s, error)
            return
        who = "its broker does not list its members" if now.members is None else f"members: {now.members}"
        self._log.warning(
            "no place in the group %s for %.0f s: it is %s, %s; joining it anew",
            *(self._view.group, waited_s, now.said, who),
        )
        self._end_leader(now)
        # Not closed: leaving is what the group may have to be healed of, and a client that hangs would hang in it too.
        self.consumer = self._join()
        self._on_revoked()

    def may_leave(self, until_s: float) -> bool:
        """Whether leaving now does the group no harm; waits for that, up to a monotonic time.

        If not, end without leaving: the group puts this member out once its session is over.
        """
        while True:
            try:
                if not self._view.look().forming:
                    return True
            except LogUnavailable as error:
                self._log.warning("left the group without saying so: %s", error)
                return False
            if self._now_s() >= until_s:
                self._log.warning(
                    "left the group %s without saying so, for it is being formed; the next member is given the"
                    " partitions once a session of %g s is over",
                    *(self._view.group, self._session_timeout_ms / 1000),
                )
                return False
            # Its place is given to it in here. What comes with it is not acknowledged, and read again.
            self.consumer.consume(_MESSAGES, _POLL_S)

    def _join(self) -> Consumer:
        consumer = self._make()
        consumer.subscribe(self._topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
        return consumer

    def _assigned(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self._joining.answered()

    def _revoked(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self._joining.lost(self._now_s())
        self._on_revoked()

    def _end_leader(self, now: GroupNow) -> None:
        leader = now.leader_other_than(self.consumer.memberid() or "")
        if leader is None:
            return
        put_out(self._view, leader, self._topics, session_timeout_ms=self._session_timeout_ms, log=self._log)
