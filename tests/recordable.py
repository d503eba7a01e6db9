"""Everything that the recorder writes of some messages, conflicts too: what it takes, it must be able to store."""

from __future__ import annotations

from aggregator.core.record.batches import Batch, Gathered
from aggregator.core.record.pending import Pending
from aggregator.core.record.terms import TermsWritten, terms_shown
from stream.contract.topics import DECISIONS
from tests.recordblocks import MIDNIGHT_US


def taken(messages: list[tuple[str, bytes]], *, partition: int = 0) -> tuple[Pending, list[str]]:
    """What the recorder holds of these messages (topic, value), and why it did not take the others."""
    pending, reasons = Pending({DECISIONS.name: "log"}), []
    for offset, (topic, value) in enumerate(messages):
        when = {"seen_at_us": MIDNIGHT_US, "appended_us": MIDNIGHT_US}
        reason = pending.take(topic, partition, offset, key=b"k", value=value, **when)
        reasons += [] if reason is None else [reason]
    return pending, reasons


def batches_of(pending: Pending) -> list[Batch]:
    """The rows of all tables, as if every block were new and contradicted what is recorded."""
    new = Gathered(pending.blocks)
    shown = TermsWritten().unwritten(terms_shown(new))
    return [*shown, *pending.batches(new, pending.blocks)]
