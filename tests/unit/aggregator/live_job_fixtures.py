"""What the tests of the live job share: a log and a table in memory, and a job over them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from aggregator.worker import thread as live_thread
from aggregator.worker.job import LiveJob
from stream.contract.block import DecisionBlock
from tests.live_blocks import FIRST_MINUTE, Decision, SlowTotals, block
from tests.live_job import Clock, MemoryLog, job_on
from tests.live_table import MemoryTable


def blocks(count: int, copy_id: str = "gw-1") -> list[DecisionBlock]:
    return [
        block(
            [Decision(caller=f"c{(place + n) % 4}", code=n % 2, minute=FIRST_MINUTE + place // 4) for n in range(6)],
            copy_id=copy_id,
            first_seq=6 * place,
        )
        for place in range(count)
    ]


def expected(log: MemoryLog, before: int | None = None) -> SlowTotals:
    totals = SlowTotals()
    for partition, blocks in log.partitions.items():
        for one in blocks[:before]:
            if one is not None:
                totals.add(partition, one)
    return totals


async def until(condition: Callable[[], bool]) -> None:
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
    filled.append(0, *blocks(12))
    return filled


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def job(log: MemoryLog, table: MemoryTable, clock: Clock) -> Iterator[LiveJob]:
    made = job_on(log, table, now_s=clock)
    yield made
    made.close()
