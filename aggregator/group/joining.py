"""How long a member of a consumer group waits for its partitions, and when that is too long. Pure: the caller's clock.

Never counts an answer of no partitions as waiting: a member beside others that have them all is idle, and was answered.
"""

from __future__ import annotations

#: A join is overdue after so many session timeouts: by then whoever died in the group was put out of it, twice.
PATIENCE_SESSIONS = 3.0
#: Each time in a row it may take twice as long, up to so many: a group may be busy with something else.
_MOST_SESSIONS = 48.0


class Joining:
    """One member's view of its own joining.

    Args:
        session_s: the group's session timeout.
        now_s: a monotonic time, at which the member begins to join.
    """

    def __init__(self, *, session_s: float, now_s: float) -> None:
        self._session_s = session_s
        self._since_s: float | None = None
        self._due_s = 0.0
        self._patience = PATIENCE_SESSIONS
        self.lost(now_s)

    @property
    def joined(self) -> bool:
        """Whether the group has answered, with partitions or without any."""
        return self._since_s is None

    def answered(self) -> None:
        """The group has dealt out its partitions; how many fell to this member does not matter."""
        self._since_s = None
        self._patience = PATIENCE_SESSIONS

    def lost(self, now_s: float) -> None:
        """The place was taken away, or given up for a new one: the group must answer again."""
        if self._since_s is None:
            self._since_s = now_s
            self._due_s = now_s + self._patience * self._session_s

    def overdue_s(self, now_s: float) -> float | None:
        """How long this member has waited, in seconds, when something is to be done about it; None otherwise.

        Says so once, and again after twice the time.
        """
        if self._since_s is None or now_s < self._due_s:
            return None
        self._patience = min(2 * self._patience, _MOST_SESSIONS)
        self._due_s = now_s + self._patience * self._session_s
        return now_s - self._since_s
