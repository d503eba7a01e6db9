"""Asks an owner, and tells what is wrong with it; a malformed ask of one bucket is a fault of that bucket alone.

An owner refuses a batch whole, before any of it takes effect. Never looks at an ask unless one was refused.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from enforcer.core.asks import check_ask
from enforcer.errors import InvalidField, OwnerUnavailable
from enforcer.messages import Answer, Ask, AskFault
from enforcer.owners.port import Owner

log = logging.getLogger("enforcer")


def ask_each(owner: Owner, asks: Sequence[Ask]) -> Sequence[Answer | AskFault]:
    """What `Owner.ask` returns, with an `AskFault` for each ask that no owner accepts; the others are asked.

    Raises:
        OwnerUnavailable: as `Owner.ask`.
        InvalidField: the owner refuses asks in which nothing is wrong.
    """
    try:
        return owner.ask(asks)
    except InvalidField:
        faults = [_fault_of(ask) for ask in asks]
        if not any(faults):
            raise
    for ask, fault in zip(asks, faults, strict=True):
        if fault is not None:
            whose = f"caller {ask.caller!r}, limit {ask.limit!r}"
            log.error("this copy's own mistake for %s: %s", whose, fault.cause, extra={"action": "ask_malformed"})
    sound = [ask for ask, fault in zip(asks, faults, strict=True) if fault is None]
    answered = list(owner.ask(sound)) if sound else []
    if len(answered) != len(sound):
        return answered
    left = iter(answered)
    return [next(left) if fault is None else fault for fault in faults]


def why_away(owner: Owner) -> str | None:
    """Why the owner would not answer an ask now, in words; None if it would."""
    try:
        owner.probe()
    except Exception as error:  # noqa: BLE001 - whatever is wrong with the owner, it cannot be asked
        return failure_cause(error)
    return None


def failure_cause(error: Exception) -> str:
    """Why the owner cannot be asked, in words; with a traceback in the log if nobody foresaw it."""
    if isinstance(error, OwnerUnavailable):
        return error.cause
    log.error("the owner failed in an unexpected way", exc_info=error, extra={"action": "asker_error"})
    return repr(error)


def _fault_of(ask: Ask) -> AskFault | None:
    try:
        check_ask(ask)
    except InvalidField as error:
        return AskFault(f"malformed ask: {error}")
    return None
