"""What stands on the log, in the form in which the sink contract compares."""

from __future__ import annotations

from enforcer.sink import DegradeChanged
from stream.contract import control
from tests.contract.sink import Kept
from tests.log_reader import Log
from tests.verdicts import rows


def kept_of(log: Log) -> Kept:
    """The decisions in order of their blocks, all facts, all changes of state."""
    decisions: list[tuple[object, ...]] = []
    for block in sorted(log.blocks, key=lambda block: block.first_seq):
        for row in rows(block):
            seq, _, caller, scope, _, _, _, grant_id, k, *rest = row
            decisions.append((seq, caller, scope, *rest, grant_id, k))
    return Kept(
        decisions,
        [fact for _, block in log.facts for fact in block.grants],
        [fact for _, block in log.facts for fact in block.settlements],
        [
            DegradeChanged(event.owner, event.entered, event.cause, event.at_us)
            for event in log.control
            if isinstance(event, control.DegradeChanged)
        ],
    )
