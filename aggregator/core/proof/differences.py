"""Where a block as it was sealed and the same block as the record has it now differ: field by field, row by row.

Works on decoded blocks at their copy's own times. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from stream.contract.block import DecisionBlock

_HEADING = (
    "sealed_at_us",
    "prev_hash",
    "clock_offset_ns",
    "owner_offset_us",
    "admitted_total",
    "refused_total",
    "cost_total",
)


def differences(was: DecisionBlock, found: DecisionBlock) -> Iterator[str]:
    """What differs between two blocks of the same numbers, the header first, then decision by decision.

    Args:
        was: as it was sealed.
        found: as the record has it.
    """
    for name in _HEADING:
        before, now = getattr(was, name), getattr(found, name)
        if before != now:
            yield f"{name} of the block is {_shown(now)}, was {_shown(before)}"
    old, new = _columns(was), _columns(found)
    unequal = {name: np.not_equal(old[name], new[name]) for name in old}
    for place in np.flatnonzero(np.logical_or.reduce([*unequal.values()])).tolist():
        for name, differs in unequal.items():
            if differs[place]:
                now, before = _shown(new[name][place]), _shown(old[name][place])
                yield f"decision {was.first_seq + place}: {name} is {now}, was {before}"


def _columns(block: DecisionBlock) -> dict[str, npt.NDArray[np.object_]]:
    """A column a field, by the names that the table has."""
    bases, basis = block.bases, block.basis
    charges: list[tuple[tuple[str, str, int], ...]] = [()] * len(bases.caller)
    for other in bases.also:
        charges[other.basis] += ((other.subject, other.limit, other.grant_id),)
    plans = [bases.plans[at] for at in bases.plan[basis].tolist()]
    return {
        "caller": _objects([bases.callers[at] for at in bases.caller[basis].tolist()]),
        "scope": _objects([bases.scopes[at] for at in bases.scope[basis].tolist()]),
        "limit": _objects([bases.limits[at] for at in bases.limit[basis].tolist()]),
        "plan": _objects([plan.name for plan in plans]),
        "rate_per_s": _objects([plan.rate_per_s for plan in plans]),
        "burst": _objects([plan.burst for plan in plans]),
        "per": _objects([plan.per for plan in plans]),
        "policy_version": _objects(bases.policy_version[basis].tolist()),
        "grant_id": _objects(bases.grant_id[basis].tolist()),
        "k": _objects(bases.k[basis].tolist()),
        "charges": _objects([charges[at] for at in basis.tolist()]),
        "at_us": _objects(block.at_us.tolist()),
        "source": _objects((block.code >> 4).tolist()),
        "reason": _objects((block.code & 15).tolist()),
        "cost_tokens": _objects(block.cost.tolist()),
        "remaining_tokens": _objects(block.remaining.tolist()),
        "retry_after_ms": _objects(block.retry_after_ms.tolist()),
    }


def _objects(values: list[object] | list[str] | list[float]) -> npt.NDArray[np.object_]:
    column = np.empty(len(values), object)
    column[:] = values
    return column


def _shown(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else repr(value)
