"""What stands between pages and a database that is slow, stands still or is gone."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator

import pytest

from dashboard.breaker import PAUSE_S
from dashboard.gate import PROBE_S, READERS, Gate
from dashboard.store import RecordUnavailable
from tests.unit.dashboard.scripted import HANG_S, HandClock, ScriptedRecord, two_queries

PAGE_S = 2.7


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> HandClock:
    """The loop's clock, in the test's hand."""
    hand = HandClock()
    monkeypatch.setattr(asyncio.get_running_loop(), "time", hand.read)
    return hand


@pytest.fixture
async def record() -> AsyncIterator[ScriptedRecord]:
    """A database that answers, and in the end lets every thread go."""
    scripted = ScriptedRecord()
    yield scripted
    scripted.released.set()


@pytest.fixture
async def gate(record: ScriptedRecord, clock: HandClock) -> AsyncIterator[Gate]:
    """The way to it."""
    made = Gate(record, page_s=PAGE_S, now_us=clock.now_us)
    yield made
    made.close()


async def _times(count: int, semaphore: threading.Semaphore) -> None:
    """Wait until threads have said so, so many times."""
    for _ in range(count):
        assert await asyncio.to_thread(semaphore.acquire, timeout=HANG_S)


async def _turn(clock: HandClock, seconds: float) -> None:
    """Let time pass, and what was waiting for it happen."""
    clock.now_s += seconds
    for _ in range(10):
        await asyncio.sleep(0)


async def _stall(gate: Gate, record: ScriptedRecord, clock: HandClock) -> None:
    """One page that has no answer in its time."""
    record.released.clear()
    page = asyncio.create_task(gate.read(two_queries))
    await _times(1, record.begun)
    await _turn(clock, PAGE_S + 0.1)
    with pytest.raises(RecordUnavailable, match=r"did not answer within 2\.7 s"):
        await page


async def test_gate_serves_pages_again_after_one_stall_when_their_first_query_takes_longer_than_a_probe(
    gate: Gate, record: ScriptedRecord, clock: HandClock
) -> None:
    """A page is no question whether anybody is there: its first query may take longer than a probe may."""
    await _stall(gate, record, clock)
    await _turn(clock, PAUSE_S)
    page = asyncio.create_task(gate.read(two_queries))
    await _times(1, record.begun)
    await _turn(clock, PROBE_S + 0.2)
    record.released.set()
    assert "figures" == await page
    assert "figures" == await gate.read(two_queries)


async def test_gate_counts_an_answer_that_came_too_late_for_its_page(
    gate: Gate, record: ScriptedRecord, clock: HandClock
) -> None:
    """The database answers: the next page need not wait for the pause, nor for a probe."""
    await _stall(gate, record, clock)
    with pytest.raises(RecordUnavailable, match="asked a moment ago"):
        await gate.read(two_queries)
    record.released.set()
    await _times(1, record.ended)
    assert "figures" == await gate.read(two_queries)


async def test_gate_never_has_more_readers_than_its_bound_though_pages_are_given_up(
    gate: Gate, record: ScriptedRecord, clock: HandClock
) -> None:
    """A page that was given up still has its thread, and ClickHouse its query."""
    record.released.clear()
    first = [asyncio.create_task(gate.read(two_queries)) for _ in range(50)]
    await _times(READERS, record.begun)
    for page in first:
        page.cancel()
    await asyncio.gather(*first, return_exceptions=True)
    second = [asyncio.create_task(gate.read(two_queries)) for _ in range(50)]
    await _turn(clock, 0.1)
    assert (READERS, READERS) == (record.reading, record.most)
    record.released.set()
    assert ["figures"] * 50 == await asyncio.gather(*second)
    assert READERS == record.most


async def test_gate_lets_a_page_that_was_given_up_begin_no_further_query(
    gate: Gate, record: ScriptedRecord, clock: HandClock
) -> None:
    """Nobody will see the answers to the other seven."""
    await _stall(gate, record, clock)
    record.released.set()
    await _times(1, record.ended)
    assert 1 == record.asks


async def test_gate_asks_a_refusing_database_once_a_second_at_most(
    gate: Gate, record: ScriptedRecord, clock: HandClock
) -> None:
    """That nobody listens is known at once, and to all pages."""
    record.refuses = True
    for _ in range(30):
        with pytest.raises(RecordUnavailable):
            await gate.read(two_queries)
        await _turn(clock, 0.1)
    assert 3 == record.asks


async def test_gate_tells_pages_that_wait_for_their_turn_that_the_database_has_gone(
    gate: Gate, record: ScriptedRecord, clock: HandClock
) -> None:
    """A hundred pages that came together ask as often as there are readers."""
    record.refuses = True
    pages = await asyncio.gather(*(gate.read(two_queries) for _ in range(100)), return_exceptions=True)
    assert {RecordUnavailable} == {type(page) for page in pages}
    assert record.asks <= READERS


async def test_gate_logs_the_beginning_and_the_end_of_an_outage_once(
    gate: Gate, record: ScriptedRecord, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A log with a line for each page hides what else went wrong in the night."""
    caplog.set_level(logging.INFO, "dashboard.gate")
    record.refuses = True
    for _ in range(30):
        with pytest.raises(RecordUnavailable) as away:
            await gate.read(two_queries)
        assert 1_000_000_000 == away.value.since_us
        await _turn(clock, 0.1)
    record.refuses = False
    await _turn(clock, PAUSE_S)
    for _ in range(3):
        assert "figures" == await gate.read(two_queries)
    said = [(line.levelname, line.getMessage()) for line in caplog.records if line.name == "dashboard.gate"]
    assert [
        ("ERROR", "the record cannot be read: nobody listens"),
        ("INFO", "the record can be read again, after 4.0 s"),
    ] == said
