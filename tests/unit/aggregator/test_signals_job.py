"""What the second stage takes and acknowledges, and how it heals."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from aggregator.core.live.rows import Cut, cut
from aggregator.core.live.shard import Shard
from aggregator.core.live.usage_blocks import CallerTargets, blocks_of_cut, messages_of
from aggregator.core.signals.rows import Noteworthy
from aggregator.signals.job import SignalsJob
from aggregator.worker import thread
from tests.live_blocks import FIRST_MINUTE, Decision, SlowTotals, block
from tests.live_job import Clock, MemoryMessage, always
from tests.live_signals import MemorySignals, expected_signals
from tests.live_table import MemoryTable
from tests.unit.aggregator.core.test_live_rows import _add

FLOOR = 4


@dataclass
class Scene:
    """A stage one that has counted and told, message by message, and a stage two on it."""

    live: MemoryTable
    signals: MemorySignals
    job: SignalsJob
    totals: SlowTotals
    messages: list[MemoryMessage]

    def again(self) -> SignalsJob:
        """Another process over the same tables."""
        return _job(self.signals)

    def exact(self) -> bool:
        return self.signals.said() == expected_signals(self.totals, partitions=1, floor=FLOOR)


def _job(signals: MemorySignals, full_bytes: int = 10**6) -> SignalsJob:
    return SignalsJob(
        signals,
        table_id="t",
        partitions=1,
        noteworthy=Noteworthy(FLOOR, "anonymous"),
        now_s=Clock(),
        now_minute=lambda: FIRST_MINUTE + 3,
        full_bytes=full_bytes,
    )


def _told(one: Cut, table_id: str = "t") -> Iterator[bytes]:
    for _, usage in blocks_of_cut(one, table_id, CallerTargets(1)):
        yield from messages_of(usage)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(thread, "_FIRST_PAUSE_S", 0.001)
    live, totals = MemoryTable(), SlowTotals()
    signals = MemorySignals(live, partitions=1)
    shard, messages = Shard(0, "log", 0, 0), list[MemoryMessage]()
    for place in range(6):
        rows = [Decision(caller=f"c{n % 3}", code=n % 2, minute=FIRST_MINUTE + place // 2) for n in range(5)]
        one = block(rows, first_seq=5 * place)
        totals.add(0, one)
        made = cut(_add(shard, one), told_from=FIRST_MINUTE)
        live.write([made])
        messages.extend(MemoryMessage(0, place, data) for data in _told(made))
    job = _job(signals)
    yield Scene(live, signals, job, totals, messages)
    job.close()


async def _take(job: SignalsJob, messages: list[MemoryMessage]) -> None:
    for message in messages:
        await job.take(message)


async def test_take_acknowledges_only_what_is_stored(scene: Scene) -> None:
    """An acknowledgement before the rows are stored would leave them unwritten after a kill -9."""
    await _take(scene.job, scene.messages[:4])
    before = [message.acked for message in scene.messages]
    await scene.job.flush(wanted=always)
    await _take(scene.job, scene.messages[4:])

    assert before == [False] * 6
    assert [message.acked for message in scene.messages] == [True] * 4 + [False] * 2
    assert scene.job.durable == {0: 4}


async def test_a_second_process_begins_with_what_the_live_totals_say(scene: Scene) -> None:
    """What was told before and committed is not delivered again: the sums would begin at zero."""
    await _take(scene.job, scene.messages[:4])

    heir = scene.again()
    await _take(heir, scene.messages[5:])
    await heir.flush(wanted=always)
    heir.close()

    assert scene.exact()


async def test_a_hole_in_the_delivery_is_filled_from_the_live_totals(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Faust jumps at times: what a lost message said would be missing until those callers come again."""
    with monkeypatch.context() as empty:
        empty.setattr(scene.signals, "load", lambda *_: [])
        await _take(scene.job, scene.messages[:1])
    await _take(scene.job, scene.messages[4:])
    await scene.job.flush(wanted=always)

    assert scene.exact()
    assert scene.job.stats.opened == 2
    assert all(message.acked for message in (scene.messages[0], *scene.messages[4:]))


async def test_messages_delivered_again_change_nothing(scene: Scene) -> None:
    """After every rebalance some are."""
    await _take(scene.job, scene.messages)
    await scene.job.flush(wanted=always)
    again = [MemoryMessage(0, message.offset, message.value) for message in scene.messages[2:]]
    await _take(scene.job, again)
    await scene.job.flush(wanted=always)

    assert scene.exact()
    assert all(message.acked for message in again)


async def test_take_leaves_out_what_is_no_usage_and_what_another_database_says(scene: Scene) -> None:
    """Versions of two tables cannot be compared, and one broken message must not stop the partition."""
    other = cut(_add(Shard(0, "log", 900, 0), block([Decision(caller="c0")] * 9)), told_from=FIRST_MINUTE)
    strange = [MemoryMessage(0, 6 + place, data) for place, data in enumerate([*_told(other, "another"), b"junk"])]
    await _take(scene.job, [*scene.messages, *strange])
    await scene.job.flush(wanted=always)

    assert scene.exact()
    assert (scene.job.stats.strange, scene.job.stats.corrupt) == (1, 1)
    assert all(message.acked for message in strange)


async def test_an_outage_of_the_database_is_waited_out(scene: Scene) -> None:
    """Nothing is acknowledged meanwhile, and nothing is lost."""
    scene.signals.failures = 2
    await _take(scene.job, scene.messages)
    await scene.job.flush(wanted=always)

    assert scene.exact()
    assert scene.job.durable == {0: 6}


async def test_take_waits_while_too_much_is_unacknowledged(scene: Scene) -> None:
    """With the database away, messages must stay in the log and not in memory."""
    small = _job(scene.signals, full_bytes=len(scene.messages[0].value))
    await small.take(scene.messages[0])
    waiting = asyncio.create_task(small.take(scene.messages[1]))
    await asyncio.sleep(0)
    assert not waiting.done()
    await small.flush(wanted=always)
    await waiting
    await small.flush(wanted=always)
    small.close()

    assert small.durable == {0: 2}


async def test_drop_all_forgets_and_acknowledges_nothing(scene: Scene) -> None:
    """After a rebalance the partitions may be somebody else's."""
    await _take(scene.job, scene.messages)
    scene.job.drop_all()
    await scene.job.flush(wanted=always)

    assert (scene.job.durable, scene.job.positions, scene.signals.said()) == ({}, {}, {})
    assert not any(message.acked for message in scene.messages)
