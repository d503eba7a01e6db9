"""The retries of a whole client: its patience, one budget, and what came of them. Knows no HTTP library, sends nothing.

Share one `Retries` between all transports, threads and tasks that call the same server: the budget bounds them
together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from threading import Lock

from enforcer.clients.asked import asked_s
from enforcer.clients.core import RetryBudget, RetryRules, wait_s
from enforcer.clock import Clock, SystemClock
from enforcer.forking import own_chance, tell_of_forks

_REFUSALS = (429, 503)
_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})


@dataclass(frozen=True, slots=True)
class RetryCounts:
    """What happened so far. Each refusal and each error is in exactly one of `retries`, `unsafe` and `given_up`.

    Attributes:
        requests: what the application sent, without retries.
        refusals: answers 429 and 503, to retries too.
        errors: broken connections, to retries too.
        retries: sent again, or waiting for it.
        unsafe: handed back because doing it twice may not be the same as once, or the body cannot be read twice.
        given_up: handed back because no wait helps, or attempts, deadline or budget are used up.
    """

    requests: int = 0
    refusals: int = 0
    errors: int = 0
    retries: int = 0
    unsafe: int = 0
    given_up: int = 0


class Retries:
    """Decides for every request of a client whether it is sent again. Safe to share between threads."""

    def __init__(
        self,
        rules: RetryRules | None = None,
        *,
        budget: RetryBudget | None = None,
        connection_errors: bool = False,
        clock: Clock | None = None,
        chance: Callable[[], float] | None = None,
    ) -> None:
        """Start with a full budget.

        Args:
            rules: how patient it is.
            budget: of this object alone: it is guarded by this object's lock.
            connection_errors: whether a connection that breaks is tried again as a 503 would be.
            clock: monotonic for the deadline, wall time for a `Retry-After` that is a date.
            chance: uniform in [0, 1), for the jitter; None: a source of its own.
        """
        self._rules = rules or RetryRules()
        self._budget = budget or RetryBudget()
        self._connection_errors = connection_errors
        self._clock = clock or SystemClock()
        self._chance = chance or own_chance()
        self._counts = RetryCounts()
        self._lock = Lock()
        tell_of_forks(self)

    def after_fork(self) -> None:
        """See `Forkable`. Budget and counts stay: the child's client is as patient as its parent's was."""
        self._lock = Lock()

    @property
    def counts(self) -> RetryCounts:
        """What happened until now."""
        return self._counts

    def begin(self, method: str, *, marked: bool | None = None, replayable: bool = True) -> Attempts:
        """Count one request of the application, which is about to be sent for the first time.

        Args:
            method: of the request; only idempotent methods are sent again by themselves.
            marked: True: sent again whatever its method; False: never; None: the method says.
            replayable: whether its body can be sent twice.
        """
        safe = marked if marked is not None else method.upper() in _IDEMPOTENT
        with self._lock:
            self._budget.request_made()
            self._count(requests=1)
        return Attempts(self, safe=safe and replayable, began_ns=self._clock.monotonic_ns())

    def answered(self, attempts: Attempts, status: int, headers: Mapping[str, str]) -> float | None:
        """See `Attempts.after_answer`."""
        if status not in _REFUSALS:
            return None
        with self._lock:
            self._count(refusals=1)
            return self._decide(attempts, status, asked_s(headers, now_unix_s=self._clock.unix_us() / 1e6))

    def broke(self, attempts: Attempts) -> float | None:
        """See `Attempts.after_error`."""
        with self._lock:
            self._count(errors=1)
            if not self._connection_errors:
                self._count(given_up=1)
                return None
            return self._decide(attempts, 503, None)

    def _decide(self, attempts: Attempts, status: int, asked: float | None) -> float | None:
        if not attempts.safe:
            self._count(unsafe=1)
            return None
        wait = wait_s(
            self._rules,
            self._budget,
            status=status,
            retry_after_s=asked,
            attempt=attempts.made,
            elapsed_s=(self._clock.monotonic_ns() - attempts.began_ns) / 1e9,
            chance=self._chance(),
        )
        if wait is None:
            self._count(given_up=1)
        else:
            self._count(retries=1)
            attempts.made += 1
        return wait

    def _count(self, **more: int) -> None:
        """Under the lock. The counts are replaced whole, so that a reader never sees half of a step."""
        self._counts = replace(self._counts, **{name: getattr(self._counts, name) + by for name, by in more.items()})


@dataclass(slots=True)
class Attempts:
    """The attempts of one request; made by `Retries.begin`. Belongs to one thread or task."""

    retries: Retries
    safe: bool
    began_ns: int
    made: int = 1

    def after_answer(self, status: int, headers: Mapping[str, str]) -> float | None:
        """Seconds to wait before sending it again; None: this answer is the application's.

        Args:
            status: of the answer.
            headers: see `asked_s`.
        """
        return self.retries.answered(self, status, headers)

    def after_error(self) -> float | None:
        """Seconds to wait after the connection broke; None: the error is the application's."""
        return self.retries.broke(self)
