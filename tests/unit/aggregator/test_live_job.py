from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from aggregator import live_thread
from aggregator.live import LiveJob
from aggregator.store import StoreRefused, StoreUnavailable
from stream.contract.block import DecisionBlock
from tests.live_blocks import FIRST_MINUTE, Decision, SlowTotals, block
from tests.live_job import Clock, MemoryLog, always, job_on, take_all
from tests.live_table import MemoryTable


def _blocks(count: int, copy_id: str = "gw-1") -> list[DecisionBlock]:
    return [
        block(
            [Decision(caller=f"c{(place + n) % 4}", code=n % 2, minute=FIRST_MINUTE + place // 4) for n in range(6)],
            copy_id=copy_id,
            first_seq=6 * place,
        )
        for place in range(count)
    ]


def _expected(log: MemoryLog) -> SlowTotals:
    totals = SlowTotals()
    for partition, blocks in log.partitions.items():
        for one in blocks:
            if one is not None:
                totals.add(partition, one)
    return totals


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is awaited is a plain attribute, which has no event
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_thread, "_FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(live_thread, "_LONGEST_PAUSE_S", 0.001)


@pytest.fixture
def table() -> MemoryTable:
    return MemoryTable()


@pytest.fixture
def log() -> MemoryLog:
    filled = MemoryLog()
    filled.append(0, *_blocks(12))
    return filled


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def job(log: MemoryLog, table: MemoryTable, clock: Clock) -> Iterator[LiveJob]:
    made = job_on(log, table, now_s=clock)
    yield made
    made.close()


async def test_take_acknowledges_only_what_is_stored(job: LiveJob, log: MemoryLog, table: MemoryTable) -> None:
    """An acknowledgement before the rows are stored is a loss at the next kill -9."""
    messages = log.messages(0)

    await take_all(job, messages[:8])
    before = [message.acked for message in messages]
    await job.flush(wanted=always)
    await take_all(job, messages[8:])

    assert before == [False] * 12
    assert [message.acked for message in messages] == [True] * 8 + [False] * 4
    assert job.durable == {0: 8}
    assert table.progress(0) == [("log", 8, 0)]


async def test_a_second_worker_goes_on_where_the_first_has_written(
    job: LiveJob, log: MemoryLog, table: MemoryTable, clock: Clock
) -> None:
    """kill -9 between two flushes: what was not written is delivered again, what was is skipped (R1, R5, R21)."""
    await take_all(job, log.messages(0, 0, 5))
    await job.flush(wanted=always)
    await take_all(job, log.messages(0, 5, 9))

    heir = job_on(log, table, now_s=clock)
    again = log.messages(0, 3)
    await take_all(heir, again)
    await heir.flush(wanted=always)
    heir.close()

    assert table.totals() == _expected(log)
    assert all(message.acked for message in again)
    assert heir.stats.replays == 2


async def test_take_leaves_a_torn_delivery_alone_until_the_missing_message_comes(
    job: LiveJob, log: MemoryLog, table: MemoryTable, clock: Clock
) -> None:
    """A hole that is acknowledged is a loss that nobody sees; Faust may still bring what is missing."""
    await take_all(job, log.messages(0, 0, 3))
    early = log.messages(0, 5, 8)
    await take_all(job, early)
    clock.now_s += 4
    torn_since = job.torn_since()
    await take_all(job, log.messages(0, 3))
    await job.flush(wanted=always)

    assert torn_since == 100.0
    assert job.torn_since() is None
    assert [message.acked for message in early] == [False] * 3
    assert table.totals() == _expected(log)


async def test_take_goes_on_behind_what_retention_has_removed_and_records_it(
    job: LiveJob, log: MemoryLog, table: MemoryTable
) -> None:
    """Offsets that no longer exist never come: waiting would stop the partition for ever, silence would hide it."""
    await take_all(job, log.messages(0, 0, 3))
    log.low[0] = 7
    await take_all(job, log.messages(0, 7))
    await job.flush(wanted=always)

    assert table.losses == [(0, 3, 7, 1_700_000_000_000_000)]
    assert (job.stats.lost_offsets, job.stats.missing_seqs) == (4, 24)
    assert job.durable == {0: 12}


async def test_take_skips_a_corrupt_block_and_goes_on(job: LiveJob, log: MemoryLog, table: MemoryTable) -> None:
    """One broken message must neither stop the partition nor be read again after every restart (R20)."""
    log.append(0, None, *_blocks(2, "gw-9"))
    messages = log.messages(0)

    await take_all(job, messages)
    await job.flush(wanted=always)

    assert job.stats.corrupt == 1
    assert all(message.acked for message in messages)
    assert table.totals() == _expected(log)


async def test_drop_all_forgets_and_acknowledges_nothing(job: LiveJob, log: MemoryLog, table: MemoryTable) -> None:
    """After a rebalance the partitions may be somebody else's: what is not written is theirs to count."""
    messages = log.messages(0, 0, 6)
    await take_all(job, messages)

    job.drop_all()
    await job.flush(wanted=always)

    assert (job.durable, job.positions, table.writes) == ({}, {}, 0)
    assert not any(message.acked for message in messages)


async def test_a_revocation_while_state_is_loaded_drops_the_message(
    log: MemoryLog, table: MemoryTable, clock: Clock
) -> None:
    """The message was read under an assignment that ended while the database answered."""

    class Revoking(MemoryTable):
        def progress(self, partition: int) -> list[tuple[str, int, int]]:
            loop.call_soon_threadsafe(job.drop_all)
            return []

        def recent_copies(self, partition: int) -> list[tuple[int, str, int, int, int]]:
            raise AssertionError("asked for state of a partition that is gone")

    loop = asyncio.get_running_loop()
    job = job_on(log, Revoking(), now_s=clock)

    await job.take(log.message(0, 0))
    job.close()

    assert (job.positions, job.durable) == ({}, {})


@pytest.mark.parametrize("lands", [False, True])
async def test_flush_repeats_the_same_rows_until_they_are_stored(
    job: LiveJob, log: MemoryLog, table: MemoryTable, lands: bool
) -> None:
    """An outage stops the acknowledgement and loses nothing, whether or not the unanswered INSERT was stored."""
    messages = log.messages(0)
    await take_all(job, messages)
    table.failures, table.failed_writes_land = 5, lands

    await job.flush(wanted=always)

    assert table.totals() == _expected(log)
    assert all(message.acked for message in messages)
    assert job.blocked_since is None


async def test_flush_gives_up_when_nobody_wants_to_wait(job: LiveJob, log: MemoryLog, table: MemoryTable) -> None:
    """SIGTERM while the database is away must end the process; what was not written is read again."""
    messages = log.messages(0)
    await take_all(job, messages)
    table.failures = 10**9

    with pytest.raises(live_thread.NotWanted):
        await job.flush(wanted=lambda: False)

    assert not any(message.acked for message in messages)
    assert job.durable == {0: 0}


async def test_take_waits_while_the_database_is_away(job: LiveJob, log: MemoryLog, table: MemoryTable) -> None:
    """Reading on in an outage would fill the memory with messages that cannot be acknowledged."""
    await job.take(log.message(0, 0))
    table.failures = 10**9
    writing = asyncio.create_task(job.run(0.001))
    await asyncio.wait_for(_until(lambda: job.blocked_since is not None), 10)

    waiting = asyncio.create_task(job.take(log.message(0, 1)))
    for _ in range(50):
        await asyncio.sleep(0)
    held_back = not waiting.done()
    table.failures = 0
    await waiting
    job.stop_taking()
    await writing
    await job.flush(wanted=always)

    assert held_back
    assert job.stats.blocks == 2
    assert job.durable == {0: 2}


@pytest.mark.parametrize("bound", [{"full_rows": 8}, {"full_bytes": 9}])
async def test_take_has_a_full_shard_written_first(
    log: MemoryLog, table: MemoryTable, clock: Clock, bound: dict[str, int]
) -> None:
    """What changed between two writes must fit into one INSERT, and what is held into memory, at any speed."""
    job = job_on(log, table, now_s=clock, **bound)
    writing = asyncio.create_task(job.run(3600))

    await take_all(job, log.messages(0))
    job.stop_taking()
    await writing
    await job.flush(wanted=always)
    job.close()

    assert table.totals() == _expected(log)
    assert table.writes > 3
    assert table.largest_write < 40


async def test_a_writer_that_has_gone_further_makes_the_shard_open_anew(
    job: LiveJob, log: MemoryLog, table: MemoryTable, clock: Clock
) -> None:
    """A frozen former owner woke up and wrote: adding to its rows would count twice, so its position is taken over."""
    zombie = job_on(log, table, now_s=clock)
    await take_all(zombie, log.messages(0, 0, 10))
    await take_all(job, log.messages(0, 0, 4))
    await job.flush(wanted=always)
    await zombie.flush(wanted=always)

    messages = log.messages(0, 4)
    await take_all(job, messages)
    await job.flush(wanted=always)
    zombie.close()

    assert job.stats.reopened == 1
    assert table.totals() == _expected(log)
    assert all(message.acked for message in messages)


async def test_a_log_made_anew_is_counted_on_top(
    log: MemoryLog, table: MemoryTable, clock: Clock, job: LiveJob
) -> None:
    """The embedded broker keeps its log in memory: after a restart offset 0 is new, and no replay of the old one."""
    await take_all(job, log.messages(0))
    await job.flush(wanted=always)
    new_log = MemoryLog(identity="another")
    new_log.append(0, *_blocks(5, "gw-2"))

    second = job_on(new_log, table, now_s=clock)
    await take_all(second, new_log.messages(0))
    await second.flush(wanted=always)
    third = job_on(new_log, table, now_s=clock)
    await take_all(third, new_log.messages(0, 2))
    third.close()
    second.close()

    both = _expected(log)
    for one in new_log.partitions[0]:
        assert one is not None
        both.add(0, one)
    assert table.totals() == both
    assert third.stats.replays == 3


async def test_a_minute_that_was_forgotten_is_read_back(
    log: MemoryLog, table: MemoryTable, clock: Clock, job: LiveJob
) -> None:
    """A copy's spool brings decisions of 8 days ago (R7): they are added to what that minute already had."""
    log.append(0, *_blocks(60, "gw-2"), *_blocks(12, "gw-3"))

    for message in log.messages(0):
        await job.take(message)
        await job.flush(wanted=always)

    assert table.totals() == _expected(log)


async def test_a_refused_statement_is_raised(job: LiveJob, log: MemoryLog, table: MemoryTable) -> None:
    """Waiting will not help against a table of another release: the process must end and say so."""

    class Refusing(MemoryTable):
        def progress(self, partition: int) -> list[tuple[str, int, int]]:
            raise StoreRefused("no column `scope`")

    job = job_on(log, Refusing(), now_s=Clock())

    with pytest.raises(StoreRefused, match="no column"):
        await job.take(log.message(0, 0))
    job.close()


async def test_take_leaves_messages_alone_once_it_is_stopping(job: LiveJob, log: MemoryLog) -> None:
    """What comes between SIGTERM and the last flush belongs to the next owner."""
    job.stop_taking()
    message = log.message(0, 0)

    await job.take(message)

    assert (job.positions, message.acked) == ({}, False)


async def test_an_outage_while_state_is_loaded_is_waited_out(log: MemoryLog, clock: Clock) -> None:
    """The database may be away in the very moment of a takeover."""

    class Slow(MemoryTable):
        refusals = 3

        def progress(self, partition: int) -> list[tuple[str, int, int]]:
            if self.refusals:
                self.refusals -= 1
                raise StoreUnavailable("starting up")
            return []

    table = Slow()
    job = job_on(log, table, now_s=clock)

    await take_all(job, log.messages(0))
    await job.flush(wanted=always)
    job.close()

    assert table.totals() == _expected(log)
