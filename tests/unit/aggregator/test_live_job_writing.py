"""How the live job writes, waits for the database, and reads back what it has forgotten."""

from __future__ import annotations

import asyncio

import pytest

from aggregator.store import StoreRefused, StoreUnavailable
from aggregator.worker import thread as live_thread
from aggregator.worker.job import LiveJob
from tests.live_blocks import FIRST_MINUTE, Decision, block
from tests.live_job import Clock, MemoryLog, always, job_on, take_all
from tests.live_table import MemoryTable
from tests.unit.aggregator.live_job_fixtures import _short_pauses, blocks, clock, expected, job, log, table, until

__all__ = ["_short_pauses", "clock", "job", "log", "table"]


@pytest.mark.parametrize("lands", [False, True])
async def test_flush_repeats_the_same_rows_until_they_are_stored(
    job: LiveJob, log: MemoryLog, table: MemoryTable, lands: bool
) -> None:
    """An outage stops the acknowledgement and loses nothing, whether or not the unanswered INSERT was stored."""
    messages = log.messages(0)
    await take_all(job, messages)
    table.failures, table.failed_writes_land = 5, lands

    await job.flush(wanted=always)

    assert table.totals() == expected(log)
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
    await asyncio.wait_for(until(lambda: job.blocked_since is not None), 10)

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


@pytest.mark.parametrize(("full_rows", "full_bytes"), [(8, 10**6), (10_000, 9)])
async def test_take_has_a_full_shard_written_first(
    log: MemoryLog, table: MemoryTable, clock: Clock, full_rows: int, full_bytes: int
) -> None:
    """What changed between two writes must fit into one INSERT, and what is held into memory, at any speed."""
    job = job_on(log, table, now_s=clock, full_rows=full_rows, full_bytes=full_bytes)
    writing = asyncio.create_task(job.run(3600))

    await take_all(job, log.messages(0))
    job.stop_taking()
    await writing
    await job.flush(wanted=always)
    job.close()

    assert table.totals() == expected(log)
    assert table.writes > 3
    assert table.largest_write < 40


async def test_a_writer_that_has_gone_further_makes_the_shard_open_anew(
    job: LiveJob, log: MemoryLog, table: MemoryTable, clock: Clock
) -> None:
    """A frozen former owner woke up and wrote: adding to its rows would count twice, so its position is taken over."""
    log.append(0, block([Decision(minute=FIRST_MINUTE + 90)], first_seq=72))
    zombie = job_on(log, table, now_s=clock)
    await take_all(zombie, log.messages(0, 0, 13))
    await take_all(job, log.messages(0, 0, 4))
    await job.flush(wanted=always)
    await zombie.flush(wanted=always)

    messages = log.messages(0, 4)
    await take_all(job, messages)
    await job.flush(wanted=always)
    zombie.close()

    assert job.stats.reopened == 1, "at the minute of which the table was not asked before"
    assert table.totals() == expected(log)
    assert all(message.acked for message in messages)


async def test_a_writer_that_has_gone_further_is_passed_where_its_minutes_were_empty(
    job: LiveJob, log: MemoryLog, table: MemoryTable, clock: Clock
) -> None:
    """Both count the same log from nothing: whoever is behind loses, cell by cell, until it has passed the other."""
    zombie = job_on(log, table, now_s=clock)
    await take_all(zombie, log.messages(0, 0, 10))
    await take_all(job, log.messages(0, 0, 4))
    await job.flush(wanted=always)
    await zombie.flush(wanted=always)

    messages = log.messages(0, 4)
    await take_all(job, messages[:3])
    await job.flush(wanted=always)
    assert table.totals() == expected(log, before=10)
    await take_all(job, messages[3:])
    await job.flush(wanted=always)
    zombie.close()

    assert job.stats.reopened == 0
    assert table.totals() == expected(log)
    assert all(message.acked for message in messages)


async def test_a_log_made_anew_is_counted_on_top(
    log: MemoryLog, table: MemoryTable, clock: Clock, job: LiveJob
) -> None:
    """The embedded broker keeps its log in memory: after a restart offset 0 is new, and no replay of the old one."""
    await take_all(job, log.messages(0))
    await job.flush(wanted=always)
    new_log = MemoryLog(identity="another")
    new_log.append(0, *blocks(5, "gw-2"))

    second = job_on(new_log, table, now_s=clock)
    await take_all(second, new_log.messages(0))
    await second.flush(wanted=always)
    third = job_on(new_log, table, now_s=clock)
    await take_all(third, new_log.messages(0, 2))
    third.close()
    second.close()

    both = expected(log)
    for one in new_log.partitions[0]:
        assert one is not None
        both.add(0, one)
    assert table.totals() == both
    assert third.stats.replays == 3


async def test_a_minute_that_was_forgotten_is_read_back(
    log: MemoryLog, table: MemoryTable, clock: Clock, job: LiveJob
) -> None:
    """A copy's spool brings decisions of 8 days ago (R7): they are added to what that minute already had."""
    log.append(0, *blocks(60, "gw-2"), *blocks(12, "gw-3"))

    for message in log.messages(0):
        await job.take(message)
        await job.flush(wanted=always)

    assert table.totals() == expected(log)


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

    assert table.totals() == expected(log)
