"""What the second stage is told, and when what was not told is told after all."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest

from aggregator.core.live.usage_blocks import CallerUsageRow
from aggregator.store import StoreUnavailable
from aggregator.worker.feed import UsageFeed
from stream.contract.usage import decode_usage
from tests.live_blocks import FIRST_MINUTE
from tests.live_job import Clock, MemoryLog, always, job_on, take_all
from tests.live_signals import usage_rows
from tests.live_table import MemoryTable
from tests.unit.aggregator.live_job_fixtures import blocks


class Topic:
    """A usage topic that can be away; remembers the highest version of each key."""

    def __init__(self) -> None:
        self.away = False
        self.told: dict[tuple[int, str], tuple[int, int]] = {}
        self.sends = 0

    def send(self, messages: Iterator[tuple[int, bytes]]) -> bool:
        self.sends += 1
        for _, data in messages:
            if self.away:
                return False
            for part in decode_usage(data).minutes:
                for caller, version, counts in zip(part.callers, part.version, part.counts, strict=True):
                    key, now = (part.minute, caller), (int(version), int(counts[0]))
                    self.told[key] = max(self.told.get(key, (0, 0)), now)
        return True


class Untold:
    """The table as the feed asks it; `asked` counts."""

    def __init__(self, live: MemoryTable) -> None:
        self._live = live
        self.asked = 0
        self.away = False

    def sent(self, partition: int, log_id: str) -> int:
        found = [row["sent"] for row in self._live.of_kind("progress", partition) if row["scope"] == log_id]
        return int(found[0]) if found else 0

    def untold_minutes(self, partition: int, sent: int, first_minute: int) -> Sequence[int]:
        if self.away:
            raise StoreUnavailable("away")
        self.asked += 1
        minutes = range(first_minute, FIRST_MINUTE + 12)
        return [minute for minute in minutes if self.untold(partition, sent, minute)]

    def untold(self, partition: int, sent: int, minute: int) -> Sequence[CallerUsageRow]:
        return [row for row in usage_rows(self._live, minute) if row[0] == partition and row[3] > sent]


class Scene:
    """A log, a table, a topic, and workers on them."""

    def __init__(self) -> None:
        self.log, self.live, self.topic = MemoryLog(), MemoryTable(), Topic()
        self.log.append(0, *blocks(12))
        self.table = Untold(self.live)

    async def life(self, first: int, end: int, flushes: int = 1, *, told: bool = True) -> UsageFeed:
        """A worker that takes a span in so many flushes, and ends without a word."""
        feed = UsageFeed(self.table, self.topic, table_id="t", partitions=2, now_minute=lambda: FIRST_MINUTE + 5)
        job = job_on(self.log, self.live, now_s=Clock(), feed=feed)
        if not told:
            feed.offer = lambda cuts: None  # type: ignore[method-assign]  # killed between the INSERT and its telling
        step = (end - first) // flushes
        for at in range(first, end, step):
            await take_all(job, self.log.messages(0, at, at + step))
            await job.flush(wanted=always)
            await feed.finish(20)
        job.close()
        feed.close()
        return feed

    def offered(self) -> dict[tuple[int, str], int]:
        """What the table says."""
        rows = [row for minute in range(FIRST_MINUTE, FIRST_MINUTE + 4) for row in usage_rows(self.live, minute)]
        return {(minute, caller): counts[0] for _, minute, caller, _, counts, _, _ in rows}

    def told(self) -> dict[tuple[int, str], int]:
        return {key: offered for key, (_, offered) in self.topic.told.items()}


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_the_second_stage_is_told_of_every_flush_without_a_question(scene: Scene) -> None:
    """In the steady state the table is not asked: what changed is at hand."""
    await scene.life(0, 3)
    asked, sends = scene.table.asked, scene.topic.sends

    feed = await scene.life(3, 12, flushes=3)

    assert scene.told() == scene.offered()
    assert scene.topic.sends - sends == 3
    assert scene.table.asked == asked + 1 > 1, "only the first telling of a worker looks into the table"
    assert feed.sent(0) == 12


async def test_what_a_killed_worker_did_not_tell_is_told_by_the_next(scene: Scene) -> None:
    """kill -9 between an INSERT and its telling, and then nothing new of those callers: nobody would ever say it."""
    await scene.life(0, 4)
    await scene.life(4, 8, told=False)
    assert scene.told() != scene.offered()

    await scene.life(8, 9)

    assert scene.told() == scene.offered()


async def test_what_the_broker_did_not_take_is_told_later(scene: Scene) -> None:
    """The totals go on while the usage topic is away, and what it missed is found in the table."""
    feed = UsageFeed(scene.table, scene.topic, table_id="t", partitions=2, now_minute=lambda: FIRST_MINUTE + 5)
    job = job_on(scene.log, scene.live, now_s=Clock(), feed=feed)
    for first, away in ((0, False), (4, True), (8, False)):
        scene.topic.away = away
        await take_all(job, scene.log.messages(0, first, first + 4))
        await job.flush(wanted=always)
        await feed.finish(20)
        assert (scene.told() == scene.offered()) is not away
        assert feed.sent(0) == {0: 4, 4: 4, 8: 12}[first]
    job.close()
    feed.close()


async def test_a_telling_that_cannot_ask_the_table_is_told_later(scene: Scene) -> None:
    """An outage of the database in between must not end the worker, nor leave a hole."""
    scene.table.away = True
    await scene.life(0, 4)
    assert scene.told() == {}
    scene.table.away = False

    await scene.life(4, 5)

    assert scene.told() == scene.offered()


async def test_flushes_do_not_wait_for_a_slow_topic(scene: Scene) -> None:
    """The second stage must not slow the totals down: what comes meanwhile is told afterwards."""
    gate = threading.Event()
    send = scene.topic.send

    def slow(messages: Iterator[tuple[int, bytes]]) -> bool:
        assert gate.wait(20)
        return send(messages)

    scene.topic.send = slow  # type: ignore[method-assign]  # waits for the test
    feed = UsageFeed(scene.table, scene.topic, table_id="t", partitions=2, now_minute=lambda: FIRST_MINUTE + 5)
    job = job_on(scene.log, scene.live, now_s=Clock(), feed=feed)
    for offset in range(11):
        await take_all(job, scene.log.messages(0, offset, offset + 1))
        await job.flush(wanted=always)
    assert scene.told() == {}
    gate.set()
    await feed.finish(20)
    assert scene.topic.sends < 11, "what waits is bounded"
    await take_all(job, scene.log.messages(0, 11, 12))
    await job.flush(wanted=always)
    await feed.finish(20)
    job.close()
    feed.close()

    assert scene.told() == scene.offered()
