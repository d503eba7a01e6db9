"""Fills the decisions topic quickly with blocks whose totals are known: for tests that kill and for benchmarks.

Deterministic: the same `Fill` makes the same bytes, whoever sends them and however often. A few hundred blocks are
really encoded; all others are the same decisions under another copy, number and time, so that millions of decisions a
second come out of one process.

>>> fill = Fill(decisions=2_000_000)
>>> send(bootstrap, fill)
>>> fill.totals().by_caller["acct-000001"].offered
"""

from __future__ import annotations

import hashlib
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from enforcer.types import Basis, Plan, Reason, Source, Standing, Terms, Verdict, outcome_code
from stream.contract import layout
from stream.contract.codec import NO_HASH, encode_block
from stream.contract.topics import DECISIONS

#: 2026-03-01T00:00:00Z: every fill begins at a full minute of one day.
START_US = 1_772_323_200_000_000
_MINUTE_US = 60_000_000
#: What happened, in a fixed mixture: most admitted, some refused, a few without the owner.
_OUTCOMES = (
    *([outcome_code(Source.LOCAL, Reason.NONE)] * 14),
    *([outcome_code(Source.LOCAL, Reason.SPENT)] * 3),
    outcome_code(Source.SHARED, Reason.NONE),
    outcome_code(Source.DEGRADED, Reason.EMERGENCY),
    outcome_code(Source.CAP, Reason.CEILING),
)
_SCOPES = ("/cards/{id}", "/orders", "/search", "(unmatched)")
_PLANS = (Plan("free", 1.0, 5), Plan("pro", 100.0, 200), Plan("bulk", 20_000.0, 40_000))


@dataclass(frozen=True, slots=True)
class Counted:
    """Totals of some decisions."""

    offered: int = 0
    admitted: int = 0
    cost: int = 0


@dataclass(frozen=True, slots=True)
class Totals:
    """What a fill holds, by every key that the tables are read by."""

    decisions: int
    by_caller: dict[str, Counted]
    #: (caller, scope, minute as unix seconds, outcome code) → decisions.
    by_cell: dict[tuple[str, str, int, int], int]


@dataclass(frozen=True, slots=True)
class _Template:
    """One really encoded block, and what stands in it."""

    data: bytes
    cells: Counter[tuple[str, str, int]]
    costs: Counter[str]


@dataclass(frozen=True)
class Fill:
    """What to send.

    Attributes:
        decisions: how many, rounded up to whole blocks.
        copies: enforcer processes that made them; each has one epoch and contiguous numbers.
        callers: callers that they belong to.
        minutes: minutes over which each copy's decisions are spread, beginning at `start_us`.
        block: decisions in a block.
        epoch: of every copy; another fill of the same copies needs another.
        seed: draws callers, outcomes and costs.
        start_us: a full minute, unix microseconds.
    """

    decisions: int
    copies: int = 8
    callers: int = 1_000
    minutes: int = 3
    block: int = 2_000
    epoch: int = 1
    seed: int = 1
    start_us: int = START_US
    templates: int = 48

    @property
    def blocks(self) -> int:
        """How many messages are sent."""
        return -(-self.decisions // self.block)

    @property
    def total(self) -> int:
        """How many decisions are really sent."""
        return self.blocks * self.block

    def messages(self) -> Iterator[tuple[str, bytes]]:
        """Key and value of every message, in the order of sending: copies take turns."""
        hashes = [NO_HASH] * self.copies
        for number in range(self.blocks):
            copy, turn = number % self.copies, number // self.copies
            template = self._templates[number % len(self._templates)]
            data = self._stamped(template, copy, turn, hashes[copy])
            hashes[copy] = hashlib.blake2b(data, digest_size=layout.HASH_BYTES).digest()
            yield copy_name(copy), data

    def totals(self) -> Totals:
        """What the tables must hold once all of it is recorded, each decision once."""
        uses: Counter[tuple[int, int]] = Counter(
            (number % len(self._templates), self._at_us(number // self.copies) // _MINUTE_US * 60)
            for number in range(self.blocks)
        )
        cells: Counter[tuple[str, str, int, int]] = Counter()
        offered: Counter[str] = Counter()
        admitted: Counter[str] = Counter()
        cost: Counter[str] = Counter()
        for (index, minute), times in uses.items():
            template = self._templates[index]
            for (caller, scope, code), count in template.cells.items():
                cells[caller, scope, minute, code] += count * times
                offered[caller] += count * times
                admitted[caller] += 0 if code & 15 else count * times
            for caller, tokens in template.costs.items():
                cost[caller] += tokens * times
        by_caller = {caller: Counted(offered[caller], admitted[caller], cost[caller]) for caller in offered}
        return Totals(self.total, by_caller, dict(cells))

    def _at_us(self, turn: int) -> int:
        """When a copy's block of a given turn begins: at a full second, so that no block crosses a minute."""
        turns = -(-self.blocks // self.copies)
        return self.start_us + turn * self.minutes * 60 // max(turns, 1) * 1_000_000

    def _stamped(self, template: _Template, copy: int, turn: int, prev_hash: bytes) -> bytes:
        """The template's decisions as another copy's, with other numbers and at another time."""
        values = list(layout.HEADER.unpack_from(template.data))
        names = [header.name for header in layout.HEADER_FIELDS]
        at_us = self._at_us(turn)
        for name, value in {
            "epoch": self.epoch,
            "first_seq": turn * self.block,
            "sealed_at_us": at_us + 1_000_000,
            "first_at_us": at_us,
            "prev_hash": prev_hash,
        }.items():
            values[names.index(name)] = value
        data = bytearray(template.data)
        layout.HEADER.pack_into(data, 0, *values)
        copy_id = copy_name(copy).encode()
        name_at = layout.HEADER.size + layout.DESCRIPTORS.size
        data[name_at : name_at + len(copy_id)] = copy_id
        crc = zlib.crc32(memoryview(data)[layout.CRC_END :], zlib.crc32(memoryview(data)[: layout.CRC_AT]))
        data[layout.CRC_AT : layout.CRC_END] = crc.to_bytes(4, "little")
        return bytes(data)

    @cached_property
    def _templates(self) -> list[_Template]:
        draw = np.random.default_rng(self.seed)
        return [self._template(draw) for _ in range(min(self.templates, self.blocks))]

    def _template(self, draw: np.random.Generator) -> _Template:
        # A square makes some callers much busier than others, as in life.
        callers = (draw.random(self.block) ** 2 * self.callers).astype(int).tolist()
        codes = [_OUTCOMES[index] for index in draw.integers(0, len(_OUTCOMES), self.block).tolist()]
        costs = draw.choice([1, 1, 1, 5], self.block).tolist()
        gaps_ns = np.sort(draw.integers(0, 900_000, self.block) * 1_000).tolist()
        bases: dict[int, Basis] = {}
        verdicts = []
        for seq, (number, code, cost, gap_ns) in enumerate(zip(callers, codes, costs, gaps_ns, strict=True)):
            basis = bases.setdefault(number, _basis(number))
            wait_ms = 0 if code & 15 == 0 else 1 + seq % 1_000
            at_ns = self.start_us * 1_000 + gap_ns - gaps_ns[0]
            ready_at_ns = at_ns + wait_ms * 1_000_000 if wait_ms else 0
            verdicts.append(Verdict(seq, at_ns, basis, code & 15 == 0, code, cost, 20 - seq % 20, ready_at_ns))
        data = encode_block(
            verdicts,
            copy_id=copy_name(0),
            epoch=self.epoch,
            first_seq=0,
            sealed_at_us=self.start_us + 1_000_000,
            clock_offset_ns=0,
        )
        cells = Counter((verdict.basis.caller, verdict.basis.scope, verdict.code) for verdict in verdicts)
        spent: Counter[str] = Counter()
        for verdict in verdicts:
            spent[verdict.basis.caller] += verdict.cost
        return _Template(data, cells, spent)


def copy_name(number: int) -> str:
    """The id of a copy; all are equally long."""
    return f"copy-{number:04d}"


def caller_name(number: int) -> str:
    """The id of a caller."""
    return f"acct-{number:06d}"


def _basis(number: int) -> Basis:
    standing = Standing(caller_name(number), Terms("sustained", _PLANS[number % len(_PLANS)], 1 + number % 2))
    return Basis(standing, _SCOPES[number % len(_SCOPES)], grant_id=START_US + number, k=1 + number % 8)


def send(bootstrap: str, fill: Fill, *, timeout_s: float = 120.0) -> None:
    """Send all messages of a fill and return once the broker has them. The topics must exist.

    Raises:
        RuntimeError: some were not delivered in time.
    """
    send_messages(bootstrap, fill.messages(), timeout_s=timeout_s)


def send_messages(bootstrap: str, messages: Iterable[tuple[str, bytes]], *, timeout_s: float = 120.0) -> None:
    """Send keys and values to the decisions topic as they come, and return once the broker has them all.

    Raises:
        RuntimeError: some were not delivered in time.
    """
    from confluent_kafka import KafkaError, Message, Producer  # noqa: PLC0415  (not needed to know the totals)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.kbytes": 131_072,
        }
    )
    faults: list[str] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            faults.append(error.str())

    for key, value in messages:
        while True:
            try:
                producer.produce(DECISIONS.name, value, key.encode(), on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    left = producer.flush(timeout_s)
    if left or faults:
        raise RuntimeError(f"{left} messages not delivered within {timeout_s} s, {len(faults)} failed: {faults[:1]}")
