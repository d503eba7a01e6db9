"""Any cut of the log, any kill, any order in which old owners write: the live totals are equal."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from aggregator.core.live.arrow import rows_table
from aggregator.core.live.load import Moved, open_shard, put_blank, put_copies, put_minutes
from aggregator.core.live.rows import Cut, cut
from aggregator.core.live.shard import Shard
from aggregator.core.live.totals import ahead_of, fold, missing
from aggregator.worker.job import LiveJob
from aggregator.worker.thread import NotWanted
from stream.contract.block import DecisionBlock
from tests.live_blocks import FIRST_MINUTE, LARGE, STANDARD, Decision, SlowTotals, block
from tests.live_job import Clock, MemoryLog, MemoryMessage, always, job_on, take_all
from tests.live_table import MemoryTable

_CODES = st.sampled_from([0x00, 0x01, 0x10, 0x11, 0x20, 0x23, 0x24, 0x35, 0x02, 0x0F])

decisions = st.builds(
    Decision,
    caller=st.sampled_from(["a", "b", "c", "a b"]),
    scope=st.sampled_from(["x", "y", "b x"]),
    minute=st.integers(FIRST_MINUTE, FIRST_MINUTE + 3),
    code=_CODES,
    cost=st.integers(0, 2**32 - 1),
    plan=st.sampled_from([STANDARD, LARGE]),
    policy_version=st.sampled_from([0, 1, 2**32 - 1]),
    k=st.integers(0, 5),
    grant_id=st.integers(0, 3),
    at_us=st.integers(1, 2_500_000),
    retry_after_ms=st.sampled_from([0, 0, -1, 1, 500, 1_000, 2**31 - 1]),
)


@st.composite
def logs(draw: st.DrawFn, *, most_blocks: int = 14) -> list[DecisionBlock | None]:
    """One partition: blocks of a few copies, in order within each, some sent twice or cut anew, some lost or broken."""
    next_seq: dict[tuple[str, int], int] = {}
    blocks: list[DecisionBlock | None] = []
    for _ in range(draw(st.integers(1, most_blocks))):
        if draw(st.integers(0, 12)) == 0:
            blocks.append(None)
            continue
        key = (draw(st.sampled_from(["gw-1", "gw-2", "gw-3"])), draw(st.sampled_from([1, 2])))
        rows = draw(st.lists(decisions, max_size=8))
        first = max(next_seq.get(key, 0) + draw(st.sampled_from([0, 0, 0, 0, -3, -1, 2])), 0)
        blocks.append(block(rows, copy_id=key[0], epoch=key[1], first_seq=first))
        next_seq[key] = max(next_seq.get(key, 0), first + len(rows))
        if draw(st.integers(0, 5)) == 0:
            blocks.append(blocks[-1])
    return blocks


def plain_totals(blocks: Sequence[DecisionBlock | None]) -> SlowTotals:
    """What the log says, counted the slow way."""
    totals = SlowTotals()
    for one in blocks:
        if one is not None:
            totals.add(0, one)
    return totals


@given(logs())
def test_fold_is_equal_to_counting_one_by_one(blocks: list[DecisionBlock | None]) -> None:
    """The vectorised count is only worth its speed if it is the plain count."""
    shard, table = Shard(0, "log", 0, 0), MemoryTable()
    for one in blocks:
        if one is None:
            shard.skip_to(shard.next_offset + 1)
            continue
        minutes, copies = missing(shard, one)
        put_minutes(shard, minutes, usage=[], fleet=[], callers=[])
        put_copies(shard, copies, [])
        fold(shard, one, shard.next_offset)
    table.write([cut(shard)])

    assert table.totals() == plain_totals(blocks)


WORKERS = st.sampled_from([0, 1])


class Lives(RuleBasedStateMachine):
    """Workers that come, freeze, wake up and die on one partition, each writing when it likes.

    At every moment the table says exactly what the log says up to the progress that the table states.
    """

    @initialize()
    def begin(self) -> None:
        # A plain log: what is searched for is the order of events, not the content of blocks.
        self.blocks: list[DecisionBlock | None] = [
            block([Decision(minute=FIRST_MINUTE + place // 6)], copy_id=f"gw-{place % 2}", first_seq=place // 2)
            for place in range(24)
        ]
        self.table = MemoryTable()
        self.unwritten: list[Cut] = []
        self.workers = [open_shard(0, "log", []) for _ in range(2)]

    @rule(which=WORKERS)
    def take_over(self, which: int) -> None:
        """A worker takes the partition over; whoever had it before may not know."""
        self.workers[which] = open_shard(0, "log", self.table.progress(0))

    @rule(which=WORKERS, count=st.sampled_from([1, 2, 5]))
    def take(self, which: int, count: int) -> None:
        """A worker, current or not, goes through some more of the log."""
        for _ in range(count):
            if self.workers[which].next_offset < len(self.blocks) and not self._take_one(self.workers[which]):
                self.take_over(which)
                return

    @rule(which=WORKERS)
    def write(self, which: int) -> None:
        """A worker writes what changed."""
        worker = self.workers[which]
        if worker.next_offset > worker.cut_offset:
            self.table.insert(rows_table([cut(worker)]).to_pylist())

    @rule(which=WORKERS)
    def forget(self, which: int) -> None:
        """A worker frees memory: everything that is not waiting to be written."""
        worker = self.workers[which]
        worker.minutes = {number: minute for number, minute in worker.minutes.items() if minute.dirty}
        worker.copies = {key: mark for key, mark in worker.copies.items() if mark.dirty}

    @rule(which=WORKERS)
    def write_and_freeze(self, which: int) -> None:
        """A worker's INSERT is on its way and does not arrive yet; the worker is gone meanwhile."""
        worker = self.workers[which]
        if worker.next_offset > worker.cut_offset:
            self.unwritten.append(cut(worker))
            self.take_over(which)

    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        """An INSERT from some time ago arrives, or is repeated."""
        if self.unwritten:
            late = data.draw(st.sampled_from(self.unwritten))
            self.table.insert(rows_table([late]).to_pylist())

    @invariant()
    def the_table_is_the_log_up_to_its_progress(self) -> None:
        """Named: live totals are exact, whoever wrote them."""
        if not hasattr(self, "table"):
            return
        progress = max((version for _, version, _ in self.table.progress(0)), default=0)
        assert self.table.totals() == plain_totals(self.blocks[:progress])

    def _take_one(self, worker: Shard) -> bool:
        one = self.blocks[worker.next_offset]
        if one is None:
            worker.skip_to(worker.next_offset + 1)
            return True
        minutes, copies = missing(worker, one)
        if minutes:
            asked = ahead_of(minutes[0])
            put_blank(worker, asked, self.table.stored_minutes(0, asked[0], asked[-1]))
            minutes, _ = missing(worker, one)
        try:
            if minutes:
                usage, fleet, callers = self.table.minutes(0, minutes)
                put_minutes(worker, minutes, usage=usage, fleet=fleet, callers=callers)
            put_copies(worker, copies, self.table.copies(0, copies))
        except Moved:
            return False
        fold(worker, one, worker.next_offset)
        return True


TestLives = Lives.TestCase
# More and longer runs than the profile has: a fault needs some five steps of one worker in a row.
TestLives.settings = settings(deadline=None, max_examples=150, stateful_step_count=60)


@given(
    blocks=logs(),
    lives=st.lists(
        st.tuples(st.integers(0, 14), st.lists(st.integers(0, 14), max_size=3), st.integers(0, 3), st.booleans()),
        max_size=5,
    ),
)
def test_killed_workers_leave_totals_that_the_last_one_completes(
    blocks: list[DecisionBlock | None], lives: list[tuple[int, list[int], int, bool]]
) -> None:
    """kill -9 anywhere, with redelivery from any place up to what was acknowledged, and INSERTs of unknown outcome."""
    log, table = MemoryLog(), MemoryTable()
    log.append(0, *blocks)

    async def run() -> None:
        committed = 0
        for end, flushes, failures, lands in lives:
            committed = max(committed, await _one_life(log, table, committed, end, flushes, failures, lands))
        await _one_life(log, table, committed, len(blocks), [len(blocks)], 0, False)

    asyncio.run(run())

    assert table.totals() == plain_totals(blocks)


async def _one_life(
    log: MemoryLog, table: MemoryTable, first: int, end: int, flushes: list[int], failures: int, lands: bool
) -> int:
    """A worker takes from `first` to `end`, writes where `flushes` says, and is killed; returns what is committed."""
    job = job_on(log, table, now_s=Clock(), full_rows=10**6)
    table.failures, table.failed_writes_land = failures, lands
    messages: list[MemoryMessage] = log.messages(0, first, min(end, len(log.partitions[0])))
    for message in messages:
        await take_all(job, [message])
        if message.offset + 1 in flushes:
            failing = table.failures > 0
            table.failures = min(table.failures, 1)
            if failing:
                # Killed inside the write: nobody hears whether it was stored.
                await _abandoned_flush(job)
                break
            await job.flush(wanted=always)
    job.close()
    table.failures = 0
    acked = [message.offset + 1 for message in messages if message.acked]
    assert job.durable.get(0, 0) >= max(acked, default=0)
    return max([first, *acked])


async def _abandoned_flush(job: LiveJob) -> None:
    with suppress(NotWanted):
        await job.flush(wanted=lambda: False)
