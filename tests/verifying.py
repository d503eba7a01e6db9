"""Copies that seal, a recorder that stores, and hands that tamper: what the tests of ``tallygate audit verify`` use."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from aggregator.core.proof.chain import BlockRow
from aggregator.core.record.letters import DeadLetter
from aggregator.core.record.pending import Pending
from aggregator.recorder.dead_letters import DeadLetterTopic
from aggregator.recorder.writer import Writer
from aggregator.store_clickhouse import ClickHouseStore
from aggregator.words import Answer
from enforcer.identity import CopyIdentity
from enforcer.sink import OwnerClock
from enforcer.types import Basis, Charge, Plan, Reason, Source, Standing, Terms, Verdict, outcome_code
from stream.config import StreamConfig
from stream.contract.block import DecisionBlock
from stream.contract.codec import decode_block
from stream.contract.topics import CONTROL, DECISIONS
from stream.shipper import Shipper
from tests.processes import wait_until
from tests.recordblocks import MIDNIGHT_US

_SPENT = outcome_code(Source.LOCAL, Reason.SPENT)
_PRO, _FREE = Plan("pro", 100.0, 200), Plan("free", 0.5, 3)
RATE = [Terms("rate", _PRO, 3), Terms("rate", _FREE, 3)]
_DAY = Terms("day", Plan("pro", 1.25, 108_000), 3, "day Europe/Berlin")
#: Decisions of a block.
SIZE = 12


class _NoDeadLetters(DeadLetterTopic):
    """Takes none."""

    def __init__(self) -> None:
        """Connect to nothing."""

    def send(self, letters: Sequence[DeadLetter]) -> None:
        assert not letters


@dataclass
class Copy:
    """A copy that seals a block a second, and what it has put on the log."""

    name: str
    epoch: int = 7
    owner_offset_us: int | None = None
    max_held: int = 10_000
    #: Until this block the broker is away.
    away_until: int = 0
    letters: list[tuple[str, bytes]] = field(default_factory=list)

    def live(self, blocks: int, *, terms: Sequence[Terms] = (*RATE, _DAY)) -> None:
        """Decide, seal and end."""
        start_us = MIDNIGHT_US - (self.owner_offset_us or 0)
        config = StreamConfig(block_decisions=SIZE, max_held=self.max_held)
        shipper = Shipper(config, CopyIdentity(self.name, self.epoch), now_s=0.0, unix_us=start_us)
        if self.owner_offset_us is not None:
            shipper.take_event(OwnerClock("owner:6379", self.owner_offset_us, start_us))
        for number in range(blocks):
            now_ns = (number + 1) * 1_000_000_000
            shipper.captured += [_decided(number * SIZE + place, now_ns, terms) for place in range(SIZE)]
            shipper.step(now_ns=now_ns, unix_us=start_us + now_ns // 1000, partitions=4)
            if number >= self.away_until:
                self._take(shipper)
        shipper.step(now_ns=now_ns, unix_us=start_us + now_ns // 1000, partitions=4, everything=True)
        self._take(shipper)

    def _take(self, shipper: Shipper) -> None:
        for number, letter in list(shipper.outbox):
            shipper.outbox.remove(number)
            self.letters.append((letter.topic, letter.value))

    def block_at(self, row: BlockRow) -> DecisionBlock | None:
        """As the log has it."""
        values = [value for topic, value in self.letters if topic == DECISIONS.name]
        return decode_block(values[row.log_offset]) if row.log_offset < len(values) else None


def _decided(seq: int, now_ns: int, terms: Sequence[Terms]) -> Verdict:
    """Callers, scopes, limits and outcomes of every kind, each basis an object of its own."""
    held = terms[seq % len(terms)]
    also = (Charge("(everyone)", "site", 9 + seq % 2), Charge("acct-1", "day", 0)) if seq % 5 == 0 else ()
    on = Basis(Standing(f"acct-{seq % 4}", held), f"GET /{seq % 3}", 10**15 + seq // 7, 4, also)
    is_refused = seq % 6 == 5
    at_ns = now_ns - 900_000_000 + seq % SIZE * 50_000_000
    ready_at_ns = at_ns + 250_000_000 if is_refused else 0
    return Verdict(seq, at_ns, on, not is_refused, _SPENT if is_refused else 0, 1 + seq % 3, 40 - seq % 40, ready_at_ns)


def record(store: ClickHouseStore, dsn: str, *copies: Copy) -> None:
    """What the copies put on the log, read and written by the recorder's own parts: a partition for each copy."""
    pending = Pending({DECISIONS.name: "log-1", CONTROL.name: "log-2"})
    for partition, copy in enumerate(copies):
        offsets = {DECISIONS.name: 0, CONTROL.name: 0}
        for topic, value in copy.letters:
            reason = pending.take(topic, partition, offsets[topic], key=b"k", value=value, seen_at_us=MIDNIGHT_US)
            assert reason is None
            offsets[topic] += 1
    writer = Writer(
        lambda: ClickHouseStore.connect(dsn),
        _NoDeadLetters(),
        logging.getLogger("test"),
        unix_us=lambda: MIDNIGHT_US + 60_000_000,
    )
    writer.start(pending)
    assert writer.wait(60)
    assert writer.take_written() is not None


def lines(answer: Answer) -> list[str]:
    """What is said after the verdict."""
    return [finding.line for finding in answer.findings]


def counts(answer: Answer) -> dict[str, object]:
    """The counts that are not 0."""
    return {name: number for name, number in answer.facts.items() if number}


def change(store: ClickHouseStore, statement: str) -> None:
    """Tamper with the record."""
    store.command(statement)
    wait_until(
        lambda: (
            [(0,)]
            == list(
                store.rows("SELECT count() FROM system.mutations WHERE database = currentDatabase() AND NOT is_done")
            )
        ),
        30.0,
        what="the mutation to be done",
    )


def add(store: ClickHouseStore, changed: str, which: str) -> None:
    """Put changed copies of some rows into the record."""
    rows = f"(SELECT * FROM decisions WHERE {which})"
    store.command(f"INSERT INTO decisions SELECT * REPLACE ({changed}) FROM {rows}")
