"""What a copy has to say, made into messages: blocks in a hash chain, facts by partition, control events.

Takes the times as arguments and talks to nobody; what does not fit the log is named, never dropped in silence.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from enforcer.identity import CopyIdentity
from enforcer.sink import CostChanged, GrantIssued, GrantSettled
from stream.buffer import UNENCODABLE, Loss, Run
from stream.contract.codec import NO_HASH, BlockEncoder, hash_block
from stream.contract.control import AnyControlEvent, encode_control
from stream.contract.envelope import CONTROL_EVENT, DECISIONS_EVENT, FACTS_EVENT, EventType, event_headers
from stream.contract.facts import encode_facts
from stream.contract.partition import grants_partition
from stream.contract.topics import CONTROL, DECISIONS, GRANTS
from stream.fault_log import FaultLog
from stream.outbox import Letter

#: Facts that one message carries at most.
_FACTS_PER_MESSAGE: Final = 2_000

Fact = GrantIssued | GrantSettled | CostChanged


class Sealer:
    """Makes the messages of one copy in one life. Not thread-safe.

    Args:
        identity: of the copy.
        max_message_bytes: no message is longer.
        faults: told what cannot be encoded.
    """

    def __init__(self, identity: CopyIdentity, *, max_message_bytes: int, faults: FaultLog) -> None:
        self._identity = identity
        self._key = identity.copy_id.encode()
        self._max_bytes = max_message_bytes
        self._faults = faults
        self._encoder = BlockEncoder()
        self._prev_hash = NO_HASH
        self._numbers: dict[EventType, int] = defaultdict(int)

    def seal(self, run: Run, *, sealed_at_us: int, clock_offset_ns: int) -> tuple[list[Letter], list[Loss]]:
        """Make the block of a run, or several if it is too long; what no block can hold is lost.

        Args:
            run: decisions without gaps, or none for a heartbeat.
            sealed_at_us: wall time, unix microseconds.
            clock_offset_ns: wall time minus monotonic clock, nanoseconds.
        """
        letters: list[Letter] = []
        losses: list[Loss] = []
        parts = [run]
        while parts:
            part = parts.pop()
            data = self._encode(part, sealed_at_us, clock_offset_ns)
            count = len(part.verdicts)
            if isinstance(data, bytes):
                self._prev_hash = hash_block(data)
                letters.append(self._block_letter(data, part))
            elif count > 1:
                parts.append(Run(part.first_seq + count // 2, part.verdicts[count // 2 :]))
                parts.append(Run(part.first_seq, part.verdicts[: count // 2]))
            elif count == 1:
                self._faults.note("decisions", data)
                losses.append(Loss(part.first_seq, count, UNENCODABLE))
            else:
                self._faults.note("heartbeats", data)
        return letters, losses

    def control(self, event: AnyControlEvent) -> Letter:
        """Make the message of a control event."""
        return Letter(CONTROL.name, self._key, encode_control(event), self._headers(CONTROL_EVENT))

    def facts(self, facts: Sequence[Fact], *, partitions: int) -> tuple[list[Letter], int]:
        """Make the messages of grants and settlements, and count the facts that none can hold."""
        by_partition: defaultdict[int, list[Fact]] = defaultdict(list)
        letters: list[Letter] = []
        lost = 0
        for fact in facts:
            try:
                by_partition[grants_partition(fact.caller, partitions)].append(fact)
            except (AttributeError, TypeError) as error:
                self._faults.note("grants and settlements", error)
                lost += 1
        for partition, members in by_partition.items():
            parts = [members[at : at + _FACTS_PER_MESSAGE] for at in range(0, len(members), _FACTS_PER_MESSAGE)]
            while parts:
                part = parts.pop(0)
                data = self._encode_facts(part)
                if isinstance(data, bytes):
                    headers = self._headers(FACTS_EVENT)
                    letters.append(Letter(GRANTS.name, self._key, data, headers, partition, facts=len(part)))
                elif len(part) > 1:
                    parts[:0] = [part[: len(part) // 2], part[len(part) // 2 :]]
                else:
                    self._faults.note("grants and settlements", data)
                    lost += 1
        return letters, lost

    def _encode(self, run: Run, sealed_at_us: int, clock_offset_ns: int) -> bytes | Exception | str:
        """Make the block, or say why there is none."""
        try:
            data = self._encoder.encode(
                run.verdicts,
                copy_id=self._identity.copy_id,
                epoch=self._identity.epoch,
                first_seq=run.first_seq,
                sealed_at_us=sealed_at_us,
                clock_offset_ns=clock_offset_ns,
                prev_hash=self._prev_hash,
            )
        except Exception as error:  # noqa: BLE001  # whatever is wrong with one verdict, the others must not be lost
            return error
        return data if len(data) <= self._max_bytes else self._too_long(data)

    def _encode_facts(self, facts: Sequence[Fact]) -> bytes | Exception | str:
        grants = [fact for fact in facts if isinstance(fact, GrantIssued)]
        settlements = [fact for fact in facts if isinstance(fact, GrantSettled)]
        costs = [fact for fact in facts if isinstance(fact, CostChanged)]
        try:
            data = encode_facts(self._identity, grants, settlements, costs)
        except Exception as error:  # noqa: BLE001  # whatever is wrong with one fact, the others must not be lost
            return error
        return data if len(data) <= self._max_bytes else self._too_long(data)

    def _too_long(self, data: bytes) -> str:
        return f"the length of one alone is {len(data)} bytes; allowed: {self._max_bytes} (TALLYGATE_MAX_MESSAGE_BYTES)"

    def _block_letter(self, data: bytes, run: Run) -> Letter:
        return Letter(
            DECISIONS.name,
            self._key,
            data,
            self._headers(DECISIONS_EVENT),
            first_seq=run.first_seq,
            decisions=len(run.verdicts),
        )

    def _headers(self, event: EventType) -> list[tuple[str, bytes]]:
        number = self._numbers[event]
        self._numbers[event] = number + 1
        return event_headers(event, self._identity, number)
