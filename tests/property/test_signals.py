"""Any order of flushes, tellings, repetitions, takeovers and late writers of both stages: one `signals` table."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from aggregator.core.live.load import open_shard, put_copies, put_minutes
from aggregator.core.live.rows import cut
from aggregator.core.live.shard import Shard
from aggregator.core.live.totals import fold, missing
from aggregator.core.live.usage_blocks import CallerTargets, blocks_of_cut, blocks_of_rows, messages_of
from aggregator.core.signals.rows import Noteworthy, SignalRows, cut_signals, signals_table
from aggregator.core.signals.state import SignalShard, apply
from stream.contract.block import DecisionBlock
from stream.contract.usage import decode_usage
from tests.live_blocks import FIRST_MINUTE, Decision, SlowTotals, block
from tests.live_signals import MemorySignals, expected_signals, usage_rows
from tests.live_table import MemoryTable

SOURCES, TARGETS, FLOOR, NOW = 2, 2, 3, FIRST_MINUTE + 6
NOTEWORTHY = Noteworthy(FLOOR, "anonymous")

decisions = st.builds(
    Decision,
    caller=st.sampled_from(["a", "b", "c", "anonymous", "anonymous/0417", "anonymouse"]),
    scope=st.sampled_from(["x", "y"]),
    minute=st.integers(FIRST_MINUTE, FIRST_MINUTE + 3),
    code=st.sampled_from([0x00, 0x00, 0x01, 0x20, 0x24, 0x35]),
    cost=st.integers(0, 2**32 - 1),
    k=st.integers(0, 5),
    at_us=st.integers(1, 2_500_000),
    retry_after_ms=st.sampled_from([0, 0, 1_000]),
)


@st.composite
def logs(draw: st.DrawFn, source: int) -> list[DecisionBlock]:
    """A partition's blocks, in order within each copy."""
    next_seq: dict[str, int] = {}
    blocks = []
    for _ in range(draw(st.integers(1, 5))):
        copy_id = f"gw-{source}-{draw(st.integers(0, 10))}"
        rows = draw(st.lists(decisions, min_size=1, max_size=6))
        blocks.append(block(rows, copy_id=copy_id, first_seq=next_seq.get(copy_id, 0)))
        next_seq[copy_id] = next_seq.get(copy_id, 0) + len(rows)
    return blocks


class TwoStages(RuleBasedStateMachine):
    """Stage one flushes and tells, or is killed in between; stage two takes what comes, in any order, and writes.

    The topic is a bag here: order is not relied on. In the end both stages are whole once more, and the table must say
    what the logs say, whatever was written on the way.
    """

    @initialize(logs=st.tuples(*(logs(source) for source in range(SOURCES))))
    def begin(self, logs: Sequence[list[DecisionBlock]]) -> None:
        self.logs = logs
        self.live = MemoryTable()
        self.signals = MemorySignals(self.live, partitions=TARGETS)
        self.sent = [0] * SOURCES
        self.topic: list[tuple[int, bytes]] = []
        self.late: list[list[SignalRows]] = []
        self.targets = CallerTargets(TARGETS)
        self.first = [open_shard(source, "log", []) for source in range(SOURCES)]
        self.second = [SignalShard(target) for target in range(TARGETS)]

    @rule(source=st.integers(0, SOURCES - 1))
    def stage_one_takes_over(self, source: int) -> None:
        """Killed, or its partition went elsewhere: what the table holds and was not told is told now."""
        self.first[source] = open_shard(source, "log", self.live.progress(source))
        for minute in range(FIRST_MINUTE, FIRST_MINUTE + 4):
            rows = [row for row in usage_rows(self.live, minute) if row[0] == source and row[3] > self.sent[source]]
            for target, one in blocks_of_rows(rows, "t", TARGETS):
                self.topic.extend((target, data) for data in messages_of(one))
        self.sent[source] = self.first[source].version

    @rule(source=st.integers(0, SOURCES - 1), count=st.integers(1, 3), told=st.booleans())
    def stage_one_flushes(self, source: int, count: int, told: bool) -> None:
        """It counts some more and writes; told is whether it lives long enough to tell the second stage."""
        shard = self.first[source]
        for one in self.logs[source][shard.next_offset : shard.next_offset + count]:
            self._take(shard, one)
        if shard.unwritten:
            made = cut(shard, told_from=FIRST_MINUTE - 1, sent=self.sent[source])
            self.live.write([made])
            if told:
                for target, usage in blocks_of_cut(made, "t", self.targets):
                    self.topic.extend((target, data) for data in messages_of(usage))
                self.sent[source] = made.version
            else:
                self.stage_one_takes_over(source)

    @precondition(lambda self: bool(self.topic))
    @rule(data=st.data())
    def stage_two_takes(self, data: st.DataObject) -> None:
        """Any message that was ever sent arrives, for the first time or again."""
        target, message = data.draw(st.sampled_from(self.topic))
        apply(self.second[target], decode_usage(message), now_minute=NOW)

    @rule(which=st.integers(0, TARGETS - 1), arrives=st.booleans())
    def stage_two_writes(self, which: int, arrives: bool) -> None:
        """It writes what changed; an INSERT of a frozen one arrives much later."""
        rows = cut_signals(self.second[which], NOTEWORTHY)
        if arrives:
            self._insert(rows)
        else:
            self.late.append(rows)
            self.stage_two_takes_over(which)

    @rule(which=st.integers(0, TARGETS - 1))
    def stage_two_takes_over(self, which: int) -> None:
        """Killed, or its partition went elsewhere: it begins with what the live totals say."""
        self.second[which] = SignalShard(which)
        for minute in range(FIRST_MINUTE, FIRST_MINUTE + 4):
            for found, one in blocks_of_rows(self.signals.load(which, minute), "t", TARGETS):
                assert found == which
                apply(self.second[which], one, now_minute=NOW)

    @precondition(lambda self: bool(self.late))
    @rule(data=st.data())
    def a_late_write_arrives(self, data: st.DataObject) -> None:
        """An INSERT from some time ago, or the same one again."""
        self._insert(data.draw(st.sampled_from(self.late)))

    def teardown(self) -> None:
        """Named: the table is that of the logs."""
        if not hasattr(self, "logs"):
            return
        for source in range(SOURCES):
            while self.first[source].next_offset < len(self.logs[source]):
                self.stage_one_flushes(source, 3, told=True)
        for target, message in reversed(self.topic):
            apply(self.second[target], decode_usage(message), now_minute=NOW)
            self._insert(cut_signals(self.second[target], NOTEWORTHY))
        for target in range(TARGETS):
            self._insert(cut_signals(self.second[target], NOTEWORTHY))
        for rows in self.late:
            self._insert(rows)
        totals = SlowTotals()
        for source, blocks in enumerate(self.logs):
            for one in blocks:
                totals.add(source, one)
        assert self.signals.said() == expected_signals(totals, partitions=TARGETS, floor=FLOOR)

    def _take(self, shard: Shard, one: DecisionBlock) -> None:
        minutes, copies = missing(shard, one)
        if minutes:
            usage, fleet, callers = self.live.minutes(shard.partition, minutes)
            put_minutes(shard, minutes, usage=usage, fleet=fleet, callers=callers)
        put_copies(shard, copies, self.live.copies(shard.partition, copies))
        fold(shard, one, shard.next_offset)

    def _insert(self, rows: list[SignalRows]) -> None:
        if rows:
            self.signals.insert(signals_table(rows).to_pylist())


TestTwoStages = TwoStages.TestCase
TestTwoStages.settings = settings(deadline=None, max_examples=60, stateful_step_count=30)
