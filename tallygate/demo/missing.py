"""What went with gateways that died: their answers beside their decisions on record. Pure, apart from one query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aggregator.store import Store
from tallygate.engines.process import describe_exit

_RECORDED = """
SELECT copy_id, epoch, count(), min(seq), max(seq) FROM decisions FINAL
WHERE copy_id IN {copies:Array(String)} GROUP BY copy_id, epoch
"""


@dataclass(frozen=True, slots=True)
class LostGateway:
    """A gateway that ended while it should have run; `code` is its exit code, negative for a signal."""

    copy_id: str
    address: str
    code: int


@dataclass(frozen=True, slots=True)
class Missing:
    """What is missing of one copy; without any decision on record, epoch and sequence numbers are None."""

    copy_id: str
    code: int
    answered: int
    recorded: int
    epoch: int | None = None
    first_seq: int | None = None
    last_seq: int | None = None

    @property
    def decisions(self) -> int:
        """Decisions that a client has the answer of, and that are nowhere else."""
        return max(0, self.answered - self.recorded)

    @property
    def sentence(self) -> str:
        """What happened and what is missing, for a terminal."""
        ended = f"{self.copy_id} ended with {describe_exit(self.code)}"
        if self.epoch is None or self.first_seq is None or self.last_seq is None:
            return f"{ended}; none of its decisions is on record: all {self.answered:,} that it answered are missing"
        held = f"the record holds seq {self.first_seq:,} to {self.last_seq:,} of its epoch {self.epoch}"
        within = self.last_seq - self.first_seq + 1 - self.recorded
        gaps = f", without {within:,} between them" if within else ""
        if not self.decisions:
            return f"{ended}; {held}{gaps}: all that it answered"
        at_the_end = max(0, self.decisions - within)
        end = f", {at_the_end:,} of them from seq {self.last_seq + 1:,} on" if at_the_end else ""
        return f"{ended}; {held}{gaps}; it answered {self.answered:,}: {self.decisions:,} decisions are missing{end}"


def missing_of(lost: Sequence[LostGateway], answered: Mapping[str, int], store: Store) -> list[Missing]:
    """One entry for each gateway that was lost; `answered` counts answers by gateway address."""
    if not lost:
        return []
    rows = store.rows(_RECORDED, {"copies": [gateway.copy_id for gateway in lost]})
    recorded = {str(copy_id): tuple(int(number) for number in numbers) for copy_id, *numbers in rows}
    found = []
    for gateway in lost:
        seen = answered.get(gateway.address, 0)
        if gateway.copy_id not in recorded:
            found.append(Missing(gateway.copy_id, gateway.code, seen, 0))
            continue
        epoch, count, first_seq, last_seq = recorded[gateway.copy_id]
        found.append(Missing(gateway.copy_id, gateway.code, seen, count, epoch, first_seq, last_seq))
    return found
