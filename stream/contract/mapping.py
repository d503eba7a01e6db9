"""What the enforcer tells of itself, as control events on the log. Pure; the only translation of these."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from enforcer import sink
from enforcer.identity import CopyIdentity
from stream.contract import control

#: Facts that become control events; they have the same fields.
Change: TypeAlias = sink.DegradeChanged | sink.SoftLimitReached | sink.WouldRefuse | sink.PolicyChanged

_EVENTS: Final[dict[type[Change], type[control.AnyControlEvent]]] = {
    sink.DegradeChanged: control.DegradeChanged,
    sink.SoftLimitReached: control.SoftLimitReached,
    sink.WouldRefuse: control.WouldRefuse,
    sink.PolicyChanged: control.PolicyChanged,
}


def control_event(fact: Change, identity: CopyIdentity) -> control.AnyControlEvent:
    """The event for one fact of this copy."""
    fields = {name: _writable(value) for name, value in msgspec.structs.asdict(fact).items()}
    return _EVENTS[type(fact)](copy_id=identity.copy_id, epoch=identity.epoch, **fields)


def _writable(value: Any) -> Any:
    """Text with escapes for what UTF-8 cannot write, for a cause may quote anything; what is not text as it is."""
    if isinstance(value, tuple):
        return tuple(map(_writable, value))
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
