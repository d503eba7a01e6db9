"""Whatever happens between a capture and the broker's word, in any order: each decision ends in one place."""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from enforcer.types import Verdict
from stream.buffer import HOLE
from stream.config import StreamConfig
from stream.contract.block import DecisionBlock
from stream.contract.codec import decode_block, encode_columns
from stream.contract.control import CopyStopped, DecisionsLost, decode_control
from stream.contract.topics import CONTROL, DECISIONS
from stream.outbox import Letter
from stream.shipper import Shipper
from tests.verdicts import IDENTITY, verdict

_CONFIG = StreamConfig(block_decisions=7, flush_s=1.0, hold_back_s=2.0, max_held=60)
#: A cost that no block can hold.
_TOO_DEAR = 2**40


class ShipperMachine(RuleBasedStateMachine):
    """Captures, overtaking threads, blocks, deliveries, failures, refusals, dropped rounds, and the end."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ns = 10**15
        self.shipper = Shipper(_CONFIG, IDENTITY, now_s=self.now_ns / 1e9, unix_us=1_750_000_000_000_000)
        self.numbered = 0
        self.withheld: list[int] = []
        self.captured: set[int] = set()
        self.recorded: Counter[int] = Counter()
        self.named: Counter[int] = Counter()
        self.next_seq: int | None = None
        self.taken: dict[int, Verdict] = {}
        self.blocks: list[DecisionBlock] = []
        self.never_handed_over: set[int] = set()

    @rule(count=st.integers(1, 20), odd=st.booleans())
    def capture(self, count: int, odd: bool) -> None:
        for seq in range(self.numbered, self.numbered + count):
            self._take(seq, cost=_TOO_DEAR if odd and seq % 5 == 0 else 1 + seq % 3, code=seq % 4 // 3)
        self.numbered += count

    @rule()
    def number_without_handing_over(self) -> None:
        self.withheld.append(self.numbered)
        self.numbered += 1

    @rule(data=st.data())
    def hand_over_late(self, data: st.DataObject) -> None:
        if self.withheld:
            self._take(self.withheld.pop(data.draw(st.integers(0, len(self.withheld) - 1))))

    @rule()
    def capture_what_is_no_verdict(self) -> None:
        self.shipper.captured.append("no verdict")  # type: ignore[arg-type]  # that is the point

    @rule(wait_ms=st.integers(0, 2_500))
    def seal(self, wait_ms: int) -> None:
        self.now_ns += wait_ms * 1_000_000
        self._step()

    @rule(count=st.integers(1, 5))
    def hand_to_the_client(self, count: int) -> None:
        for number, _ in self.shipper.outbox.waiting(count):
            self.shipper.outbox.handed_over(number)

    @rule()
    def fail(self) -> None:
        self.shipper.outbox.reset()

    @rule(count=st.integers(1, 5))
    def deliver(self, count: int) -> None:
        for number, _ in self.shipper.outbox.waiting(count):
            letter = self.shipper.outbox.remove(number)
            assert letter is not None
            self.shipper.settle(letter)
            self._read(letter)

    @rule()
    def refuse(self) -> None:
        for number, letter in self.shipper.outbox.waiting(3):
            if letter.decisions:
                self.shipper.outbox.remove(number)
                self.shipper.refuse(letter)
                return

    @rule()
    def drop(self) -> None:
        self.shipper.drop_captured(now_s=self.now_ns / 1e9)

    @invariant()
    def nothing_is_in_two_places(self) -> None:
        assert 1 >= max((self.recorded + self.named).values(), default=0)
        assert self.shipper.delivered == self.recorded.total()
        # What was just captured may be named lost already: the next look at it drops it.
        settled_or_held = self.shipper.delivered + self.shipper.lost + self.shipper.queued
        assert len(self.captured) <= settled_or_held <= self.numbered + len(self.shipper.captured)

    def teardown(self) -> None:
        """Close with the broker there or away, then look at every seq."""
        self._step(everything=True)
        if self.numbered % 2:
            self.deliver(len(self.shipper.outbox))
        for loss in self.shipper.abandon(now_s=self.now_ns / 1e9):
            self._name(loss.first_seq, loss.count, loss.cause)
        assert 0 == self.shipper.queued
        everything = Counter(range(max(self.captured, default=-1) + 1))
        assert everything == self.recorded + self.named
        assert (self.recorded.total(), self.named.total()) == (self.shipper.delivered, self.shipper.lost)
        if self.next_seq is not None:
            assert len(everything) == self.next_seq
        for block in self.blocks:
            self._check_totals(block)

    def _step(self, *, everything: bool = False) -> None:
        self.shipper.step(
            now_ns=self.now_ns, unix_us=1_750_000_000_000_000 + self.now_ns // 1000, partitions=4, everything=everything
        )

    def _check_totals(self, block: DecisionBlock) -> None:
        """A block's totals are of all decisions before its end that were handed over, whatever became of them."""
        before = range(block.first_seq + block.count)
        told = [self.taken[seq] for seq in before if seq not in self.never_handed_over]
        admitted = [one for one in told if one.allowed]
        cost = sum(min(one.cost, 2**32 - 1) for one in admitted)
        found = (block.admitted_total, block.refused_total, block.cost_total)
        assert (len(admitted), len(told) - len(admitted), cost) == found

    def _take(self, seq: int, *, cost: int = 1, code: int = 0) -> None:
        self.captured.add(seq)
        self.taken[seq] = verdict(seq, at_ns=self.now_ns, cost=cost, code=code, retry_after_ms=code)
        self.shipper.captured.append(self.taken[seq])

    def _read(self, letter: Letter) -> None:
        if letter.topic == DECISIONS.name:
            block = decode_block(letter.value)
            self.blocks.append(block)
            assert letter.value == encode_columns(block)
            self.recorded.update(range(block.first_seq, block.first_seq + block.count))
        elif letter.topic == CONTROL.name:
            event = decode_control(letter.value)
            if isinstance(event, DecisionsLost):
                self._name(event.first_seq, event.count, event.cause)
            elif isinstance(event, CopyStopped):
                self.next_seq = event.next_seq

    def _name(self, first_seq: int, count: int, cause: str) -> None:
        if cause == HOLE:
            self.never_handed_over.update(range(first_seq, first_seq + count))
        self.named.update(range(first_seq, first_seq + count))


ShipperMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
TestShipperMachine = ShipperMachine.TestCase
