"""What the live job forgets, and when: never what somebody is using, and never too late."""

from __future__ import annotations

import asyncio

from aggregator.core.live_shard import Kept
from stream.contract.block import DecisionBlock
from tests.live_blocks import FIRST_MINUTE, Decision, block
from tests.live_job import Clock, MemoryLog, always, job_on
from tests.live_table import GatedTable
from tests.unit.aggregator.live_job_fixtures import _short_pauses, clock, expected, table, until

__all__ = ["_short_pauses", "clock", "table"]

_NOTHING = Kept(names=0)


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
    log.append(0, _block(0), _block(1, copy_id="gw-2", minutes=40))
    table.open("minutes", "copies")
    job = job_on(log, table, now_s=clock, kept=Kept(minutes=3))
    messages = log.messages(0)
    await job.take(messages[0])

    table.close("minutes", "copies")
    taking = asyncio.create_task(job.take(messages[1]))
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
