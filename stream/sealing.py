"""What a copy has to say, made into messages: blocks in a hash chain, facts by partition, control events.

Takes the times as arguments and talks to nobody; what does not fit the log is named, never dropped in silence.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from msgspec import structs

from enforcer.identity import CopyIdentity
from enforcer.sink import CostChanged, GrantIssued, GrantSettled
from stream.buffer import UNENCODABLE, Loss, Run
from stream.contract.block import Totals
from stream.contract.codec import NO_HASH, NOTHING_YET, BlockEncoder, hash_block, totals_of, totals_of_verdicts
from stream.contract.control import AnyControlEvent, encode_control
from stream.contract.envelope import CONTROL_EVENT, DECISIONS_EVENT, FACTS_EVENT, EventType, event_headers
from stream.contract.facts import encode_facts
from stream.contract.layout import AT_US_MAX
from stream.contract.partition import grants_partition
from stream.contract.topics import CONTROL, DECISIONS, GRANTS
from stream.fault_log import FaultLog
from stream.outbox import Letter

#: Facts that one message carries at most.
_FACTS_PER_MESSAGE: Final = 2_000

Fact = GrantIssued | GrantSettled | CostChanged
_Stated = TypeVar("_Stated", GrantSettled, CostChanged)


@dataclass(frozen=True, slots=True)
class Chain:
    """Where the blocks of an epoch stand.

    Attributes:
        head: the hash of the last one.
        blocks: how many there are.
        next_seq: one past the last decision of the last one.
        totals: the copy's own; decisions that were lost since its last block are in them.
    """

    head: bytes = NO_HASH
    blocks: int = 0
    next_seq: int = 0
    totals: Totals = NOTHING_YET


class Sealer:
    """Makes the messages of one copy in one life. Not thread-safe.

    Args:
        identity: of the copy.
        max_message_bytes: no message is longer.
        faults: told what cannot be encoded.

    Attributes:
        owner_offset_us: the owner's clock minus wall time, microseconds, as control events say it, and by which facts
            are stated; None while unknown.
    """

    def __init__(self, identity: CopyIdentity, *, max_message_bytes: int, faults: FaultLog) -> None:
        self._identity = identity
        self._key = identity.copy_id.encode()
        self._max_bytes = max_message_bytes
        self._faults = faults
        self._encoder = BlockEncoder()
        self._chain = Chain()
        self.owner_offset_us: int | None = None
        self._numbers: dict[EventType, int] = defaultdict(int)

    @property
    def chain(self) -> Chain:
        """How far the blocks have come."""
        return self._chain

    def skip(self, run: Run, since: Chain) -> None:
        """Nothing of a run was sealed after all: go on from the chain as it was, with what the run came to as lost."""
        self._chain = since
        self._lose(run.lost_before + totals_of_verdicts(run.verdicts))

    def seal(
        self, run: Run, *, sealed_at_us: int, clock_offset_ns: int, owner_offset_us: int | None
    ) -> tuple[list[Letter], list[Loss]]:
        """Make the block of a run, or several if it is too long; what no block can hold is lost.

        Args:
            run: decisions without gaps, or none for a heartbeat.
            sealed_at_us: wall time, unix microseconds.
            clock_offset_ns: wall time minus monotonic clock, nanoseconds.
            owner_offset_us: the owner's clock minus wall time, microseconds; None while it is unknown.
        """
        letters: list[Letter] = []
        losses: list[Loss] = []
        self._lose(run.lost_before)
        parts = [run]
        while parts:
            part = parts.pop()
            data = self._encode(part, sealed_at_us, clock_offset_ns, owner_offset_us)
            count = len(part.verdicts)
            if isinstance(data, bytes):
                self._chain = Chain(
                    hash_block(data), self._chain.blocks + 1, part.first_seq + count, totals=totals_of(data)
                )
                letters.append(self._block_letter(data, part))
            elif count > 1:
                parts.append(Run(part.first_seq + count // 2, part.verdicts[count // 2 :]))
                parts.append(Run(part.first_seq, part.verdicts[: count // 2]))
            elif count == 1:
                self._faults.note("decisions", data)
                self._lose(totals_of_verdicts(part.verdicts))
                losses.append(Loss(part.first_seq, count, UNENCODABLE))
            else:
                self._faults.note("heartbeats", data)
        return letters, losses

    def _lose(self, lost: Totals) -> None:
        """Count what no block will hold."""
        self._chain = replace(self._chain, totals=self._chain.totals + lost)

    def control(self, event: AnyControlEvent) -> Letter:
        """Make the message of a control event."""
        if self.owner_offset_us is not None:
            event = structs.replace(event, owner_offset_us=self.owner_offset_us)
        return Letter(CONTROL.name, self._key, encode_control(event), self._headers(CONTROL_EVENT))

    def facts(self, facts: Sequence[Fact], *, partitions: int | None) -> tuple[list[Letter], int]:
        """Make the messages of grants and settlements, and count the facts that none can hold.

        While nobody knows how many `partitions` there are, they have none: `stream.spool.undecided` shares them out.
        """
        by_partition: defaultdict[int | None, list[Fact]] = defaultdict(list)
        letters: list[Letter] = []
        lost = 0
        for fact in facts:
            try:
                place = grants_partition(fact.caller, partitions or 1)
                by_partition[None if partitions is None else place].append(fact)
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

    def _encode(
        self, run: Run, sealed_at_us: int, clock_offset_ns: int, owner_offset_us: int | None
    ) -> bytes | Exception | str:
        """Make the block, or say why there is none."""
        try:
            data = self._encoder.encode(
                run.verdicts,
                copy_id=self._identity.copy_id,
                epoch=self._identity.epoch,
                first_seq=run.first_seq,
                sealed_at_us=sealed_at_us,
                clock_offset_ns=clock_offset_ns,
                prev_hash=self._chain.head,
                owner_offset_us=owner_offset_us,
                before=self._chain.totals,
            )
        except Exception as error:  # noqa: BLE001  # whatever is wrong with one verdict, the others must not be lost
            return error
        return data if len(data) <= self._max_bytes else self._too_long(data)

    def _encode_facts(self, facts: Sequence[Fact]) -> bytes | Exception | str:
        grants = [fact for fact in facts if isinstance(fact, GrantIssued)]
        settlements = [self._at_owners_time(fact) for fact in facts if isinstance(fact, GrantSettled)]
        costs = [self._at_owners_time(fact) for fact in facts if isinstance(fact, CostChanged)]
        try:
            data = encode_facts(self._identity, grants, settlements, costs)
        except Exception as error:  # noqa: BLE001  # whatever is wrong with one fact, the others must not be lost
            return error
        return data if len(data) <= self._max_bytes else self._too_long(data)

    def _at_owners_time(self, fact: _Stated) -> _Stated:
        """The fact as it is to be recorded: beside grants, whose times are the owner's."""
        if not self.owner_offset_us:
            return fact
        return structs.replace(fact, at_us=min(max(fact.at_us + self.owner_offset_us, 0), AT_US_MAX))

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
