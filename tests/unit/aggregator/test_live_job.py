"""What the live job takes, in which order, and what it acknowledges."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aggregator.worker.job import LiveJob
from tests.live_job import Clock, MemoryLog, always, job_on, take_all
from tests.live_table import MemoryTable
from tests.unit.aggregator.live_job_fixtures import _short_pauses, blocks, clock, expected, job, log, table

__all__ = ["_short_pauses", "clock", "job", "log", "table"]


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

    assert table.totals() == expected(log)
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
    torn = job.torn()
    await take_all(job, log.messages(0, 3))
    await job.flush(wanted=always)

    assert torn_since == 100.0
    assert job.torn_since() is None
    assert ({0: 3}, {}) == (torn, job.torn())
    assert [message.acked for message in early] == [False] * 3
    assert table.totals() == expected(log)


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


async def test_take_goes_on_behind_a_hole_that_stays_and_records_it(
    job: LiveJob, log: MemoryLog, table: MemoryTable, clock: Clock
) -> None:
    """The worker ended on it, was started again, and ended on it again, for ever."""
    log.held[0] = 5
    await take_all(job, log.messages(0, 0, 3))
    await take_all(job, log.messages(0, 7, 9))
    assert (job.torn(), table.losses) == ({0: 3}, []), "a moment is not enough to know"

    clock.now_s += 6
    await take_all(job, log.messages(0, 8, 9))
    assert (job.torn(), table.losses) == ({0: 5}, [(0, 3, 5, 1_700_000_000_000_000)]), "others may be far ahead"

    del log.held[0]
    await take_all(job, log.messages(0, 5))
    await job.flush(wanted=always)
    assert (job.torn(), job.stats.lost_offsets, job.durable) == ({}, 2, {0: 12})


async def test_take_skips_a_corrupt_block_and_goes_on(job: LiveJob, log: MemoryLog, table: MemoryTable) -> None:
    """One broken message must neither stop the partition nor be read again after every restart (R20)."""
    log.append(0, None, *blocks(2, "gw-9"))
    messages = log.messages(0)

    await take_all(job, messages)
    await job.flush(wanted=always)

    assert job.stats.corrupt == 1
    assert all(message.acked for message in messages)
    assert table.totals() == expected(log)


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

        def recent_copies(self, partition: int) -> list[tuple[int, str, int, int, int, int]]:
            raise AssertionError("asked for state of a partition that is gone")

    loop = asyncio.get_running_loop()
    job = job_on(log, Revoking(), now_s=clock)

    await job.take(log.message(0, 0))
    job.close()

    assert (job.positions, job.durable) == ({}, {})


async def test_new_minutes_begin_without_asking_the_table_for_each(
    job: LiveJob, log: MemoryLog, table: MemoryTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading what is not there stopped every partition for seconds at each turn of a minute."""
    asked: list[str] = []

    def counted(name: str) -> Callable[..., Any]:
        whole = getattr(table, name)

        def call(*given: Any) -> Any:
            asked.append(name)
            return whole(*given)

        return call

    for name in ("minutes", "stored_minutes"):
        monkeypatch.setattr(table, name, counted(name))
    await take_all(job, log.messages(0))
    await job.flush(wanted=always)

    assert asked == ["stored_minutes"], "twelve blocks over three minutes that nobody has written"
    assert table.totals() == expected(log)


async def test_a_minute_that_was_begun_by_another_worker_is_loaded(
    job: LiveJob, log: MemoryLog, table: MemoryTable, clock: Clock
) -> None:
    """Counted from nothing, its stored half would be replaced by the other half."""
    await take_all(job, log.messages(0, 0, 6))
    await job.flush(wanted=always)

    heir = job_on(log, table, now_s=clock)
    await take_all(heir, log.messages(0, 6))
    await heir.flush(wanted=always)
    heir.close()

    assert table.totals() == expected(log)
