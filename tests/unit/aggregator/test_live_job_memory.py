"""What the live job forgets, and when: never what somebody is using, and never too late."""

from __future__ import annotations

import asyncio

from aggregator.core.live.shard import ShardBounds
from stream.contract.block import DecisionBlock
from tests.live_blocks import FIRST_MINUTE, Decision, block
from tests.live_job import Clock, MemoryLog, always, job_on, take_all
from tests.live_table import GatedTable, MemoryTable
from tests.unit.aggregator.live_job_fixtures import _short_pauses, clock, expected, table, until

__all__ = ["_short_pauses", "clock", "table"]

_NOTHING = ShardBounds(names=0)


def _block(place: int, *, copy_id: str = "gw-1", minutes: int = 1, callers: int = 3) -> DecisionBlock:
    """A block whose callers are its own, in minutes of its own."""
    decisions = [
        Decision(caller=f"{copy_id}-{place}-{number}", minute=FIRST_MINUTE + place + number % minutes)
        for number in range(max(callers, minutes))
    ]
    return block(decisions, copy_id=copy_id, first_seq=place * len(decisions))


async def test_a_shard_is_not_dropped_while_a_message_of_it_loads(clock: Clock) -> None:
    """What was folded into a dropped shard is never written, and what comes next looks torn for ever."""
    log, table = MemoryLog(), GatedTable("write", "minutes")
    log.append(0, _block(0), _block(1), _block(2))
    table.open("minutes")
    job = job_on(log, table, now_s=clock, kept=_NOTHING)
    messages = log.messages(0)
    await job.take(messages[0])

    table.close("minutes")
    writing = asyncio.create_task(job.flush(wanted=always))
    await until(table.reached["write"].is_set)
    taking = asyncio.create_task(job.take(messages[1]))
    await asyncio.sleep(0)
    table.open("write")
    await writing
    table.open("minutes")
    await taking
    await job.take(messages[2])
    await job.flush(wanted=always)
    job.close()

    assert job.torn_since() is None
    assert table.totals() == expected(log)
    assert all(message.acked for message in messages)


async def test_a_shard_is_not_dropped_while_a_loss_of_it_is_recorded(clock: Clock) -> None:
    """The position behind the hole would be forgotten with it, and the same loss be found twice."""
    log, table = MemoryLog(), GatedTable("write", "write_loss")
    log.append(0, *[_block(place) for place in range(6)])
    job = job_on(log, table, now_s=clock, kept=_NOTHING)
    await job.take(log.message(0, 0))

    writing = asyncio.create_task(job.flush(wanted=always))
    await until(table.reached["write"].is_set)
    log.low[0] = 4
    behind = log.message(0, 4)
    taking = asyncio.create_task(job.take(behind))
    await asyncio.sleep(0)
    table.open("write")
    await writing
    table.open("write_loss")
    await taking
    await job.flush(wanted=always)
    job.close()

    assert len(table.losses) == 1
    assert (job.stats.lost_offsets, behind.acked, job.durable) == (3, True, {0: 5})


async def test_a_minute_is_not_forgotten_between_its_loading_and_its_use(clock: Clock) -> None:
    """A block may span more minutes than are kept, and whether its minutes are there was looked at before."""
    log, table = MemoryLog(), GatedTable("minutes", "copies")
    log.append(0, _block(0, minutes=40), _block(1), _block(2, copy_id="gw-2", minutes=40))
    table.open("minutes", "copies")
    before = job_on(log, table, now_s=clock)
    messages = log.messages(0)
    await before.take(messages[0])
    await before.flush(wanted=always)
    before.close()
    job = job_on(log, table, now_s=clock, kept=ShardBounds(minutes=3))
    await job.take(messages[1])

    table.close("minutes", "copies")
    taking = asyncio.create_task(job.take(messages[2]))
    await until(table.reached["minutes"].is_set)
    # Written between the two readings: there is one thread, and it does what it is asked for first.
    writing = asyncio.create_task(job.flush(wanted=always))
    await asyncio.sleep(0)
    table.open("minutes")
    await writing
    table.open("copies")
    await taking
    await job.flush(wanted=always)
    job.close()

    assert table.totals() == expected(log)
    assert all(message.acked for message in messages)


def _crowd(place: int) -> DecisionBlock:
    """Three callers that never come again; ten such blocks a minute."""
    decisions = [Decision(caller=f"c{place}-{number}", minute=FIRST_MINUTE + place // 10) for number in range(3)]
    return block(decisions, first_seq=3 * place)


async def test_names_stay_bounded_though_every_write_finds_a_message_taken_meanwhile(clock: Clock) -> None:
    """Callers come and go for months; a worker that never pauses must not keep the names of all of them."""
    log, table = MemoryLog(), GatedTable("write")
    log.append(0, *[_crowd(place) for place in range(200)])
    job = job_on(log, table, now_s=clock, kept=ShardBounds(minutes=2, names=60))
    running = asyncio.create_task(job.run(3600))
    messages, most = log.messages(0), 0

    for first, second in zip(messages[::2], messages[1::2], strict=True):
        table.open("write")
        await job.take(first)
        table.close("write")
        writing = asyncio.create_task(job.flush(wanted=always))
        await until(table.reached["write"].is_set)
        taking = asyncio.create_task(job.take(second))
        await asyncio.sleep(0)
        table.open("write")
        await asyncio.gather(writing, taking)
        most = max(most, job.names)
    job.stop_taking()
    await running
    await job.flush(wanted=always)
    job.close()

    rows_of_a_minute = 10 * (3 + 3) + 1
    assert most <= 2 * 3 * rows_of_a_minute, "twice what the two minutes that are kept and the one that comes need"
    assert job.stats.outgrown > 1
    assert table.totals() == expected(log)
    assert all(message.acked for message in messages)


async def test_a_minute_of_more_names_than_the_bound_is_not_read_again_for_every_message(
    clock: Clock, table: MemoryTable
) -> None:
    """What is in use now is loaded again at once: dropping it would only make the worker slow."""
    log = MemoryLog()
    log.append(0, *[_crowd(place % 10) for place in range(30)])
    job = job_on(log, table, now_s=clock, kept=ShardBounds(names=5))

    for message in log.messages(0):
        await job.take(message)
        await job.flush(wanted=always)
    job.close()

    assert job.stats.outgrown == 0
    assert table.totals() == expected(log)


async def test_minutes_that_were_only_read_stay_bounded_between_two_writes(clock: Clock) -> None:
    """A spool that comes late touches many large minutes with little: what they hold counts as well."""
    log, table = MemoryLog(), MemoryTable()
    log.append(0, *[_crowd(place) for place in range(200)])
    log.append(0, *[block([Decision(minute=FIRST_MINUTE + n)], copy_id="late", first_seq=n) for n in range(20)])
    job = job_on(log, table, now_s=clock, kept=ShardBounds(minutes=2), full_rows=250)
    running = asyncio.create_task(job.run(3600))

    await take_all(job, log.messages(0, 0, 200))
    before, most = table.writes, 0
    for message in log.messages(0, 200):
        await job.take(message)
        most = max(most, job.rows)
    job.stop_taking()
    await running
    await job.flush(wanted=always)
    job.close()

    assert most <= 2 * (250 + 62), "rows that changed and rows that were read, each up to the bound and one block more"
    assert table.writes > before + 2
    assert table.totals() == expected(log)


async def test_messages_without_content_count_as_held(clock: Clock, table: MemoryTable) -> None:
    """A flood of empty messages must be acknowledged while it goes on, or it fills the memory with their envelopes."""
    log = MemoryLog()
    log.append(0, *[None] * 100)
    job = job_on(log, table, now_s=clock, full_bytes=20_000)
    running = asyncio.create_task(job.run(3600))

    await take_all(job, log.messages(0))
    job.stop_taking()
    await running
    job.close()

    assert table.writes >= 5
