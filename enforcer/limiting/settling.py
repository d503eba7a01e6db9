"""The last words of a copy: every total, stated as final to the owner, at most for as long as there is time.

What the owner does not hear it credits back when it expires; the sink has the totals already. Settling never raises.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from enforcer.clock import Clock
from enforcer.core.account import Account
from enforcer.errors import EnforcerError
from enforcer.limiting.sound import ask_each, failure_cause
from enforcer.messages import Ask, AskFault
from enforcer.owners.port import Owner
from enforcer.types import Verdict

log = logging.getLogger("enforcer")

#: Asks that go out in one round trip at most.
BATCH = 256


def settle_last(
    owner: Owner, owing: Sequence[Account], compose: Callable[[Account], Ask], *, clock: Clock, deadline_ns: int
) -> None:
    """State what each account owes.

    Args:
        owner: asked by nobody else meanwhile.
        owing: accounts with final totals that the owner has not acknowledged; nobody waits for them.
        compose: makes the ask of one account.
        clock: the copy's.
        deadline_ns: by its monotonic clock; no round trip begins after it.
    """
    for start in range(0, len(owing), BATCH):
        if clock.monotonic_ns() >= deadline_ns:
            warn_not_settled(len(owing) - start, "no time left")
            return
        chunk = owing[start : start + BATCH]
        try:
            outcomes = ask_each(owner, [compose(account) for account in chunk])
        except Exception as error:  # noqa: BLE001 - a fault here must not cost the record, closed after this
            warn_not_settled(len(owing) - start, failure_cause(error))
            return
        if len(outcomes) != len(chunk):
            # Which of them were heard cannot be known.
            warn_not_settled(len(owing) - start, f"{len(chunk)} asks got {len(outcomes)} answers")
            return
        for account, outcome in zip(chunk, outcomes, strict=True):
            if isinstance(outcome, AskFault):
                warn_not_settled(1, f"{account}: {outcome.cause}")


class Deadlines:
    """How the time for closing is shared: what hangs must not take it from what comes after.

    Attributes:
        join_ns: until when to wait for rounds that are under way, all of them together.
        settle_ns: until when to state totals; what is left then is the record's.
        end_ns: when there is no time left.
    """

    def __init__(self, now_ns: int, timeout_s: float) -> None:
        self.join_ns, self.settle_ns, self.end_ns = (now_ns + round(timeout_s * part * 1e9) for part in (0.5, 0.75, 1))


def do_each(acts: Iterable[Callable[[], object]], *, what: str) -> None:
    """Do all of these, whatever becomes of one: none may cost the record, which is closed after them."""
    for act in acts:
        try:
            act()
        except Exception:
            log.exception("closing goes on without %s", what, extra={"action": "close_failed"})


def too_late(verdict: Verdict) -> None:
    """Stands in for the sink once that is closed: a verdict that nobody records must not be returned either.

    Raises:
        EnforcerError: always.
    """
    raise EnforcerError(f"this limiter was closed before decision {verdict.seq} was recorded")


def warn_not_settled(callers: int, cause: str) -> None:
    """Say whose last totals were not heard, and why."""
    whose = "1 caller" if callers == 1 else f"{callers} callers"
    log.warning("last totals of %s not settled: %s", whose, cause, extra={"action": "settle_failed"})
