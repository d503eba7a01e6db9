"""A topic that was deleted and made anew is noticed by its id, and by nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from aggregator.broker import LogUnavailable
from aggregator.config import AggregatorConfig
from aggregator.worker import process, running
from aggregator.worker.same_log import until_another
from tests.live_job import MemoryLog, job_on, take_all
from tests.live_table import MemoryTable
from tests.unit.aggregator.live_job_fixtures import blocks, expected

_AWAY = LogUnavailable("Kafka does not answer")


@pytest.mark.parametrize("before", [[], ["old"], [_AWAY, "old", _AWAY, _AWAY, "old"]])
async def test_another_log_is_noticed_and_an_outage_is_none(before: list[str | LogUnavailable]) -> None:
    """A broker that is away must not end the process, and one that comes back with another log must."""
    answers: Iterator[str | LogUnavailable] = iter([*before, "new"])

    async def ask() -> str:
        answer = next(answers)
        if isinstance(answer, LogUnavailable):
            raise answer
        return answer

    assert await asyncio.wait_for(until_another(ask, "old", every_s=0), 10) == "new"
    assert next(answers, None) is None


async def test_worker_that_lost_its_log_writes_what_it_read_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """It said "0 messages behind" for ever, and counted nothing of the new log; the old one can be read by nobody."""
    said: list[tuple[int, str]] = []

    class LeftError(Exception):
        pass

    def leave(why: str, *, code: int = 1) -> None:
        said.append((code, why))
        raise LeftError

    monkeypatch.setattr(running, "_leave", leave)
    log, table = MemoryLog(), MemoryTable()
    log.append(0, *blocks(3))
    job = job_on(log, table, now_s=asyncio.get_running_loop().time)
    await take_all(job, log.messages(0))
    writing = asyncio.create_task(job.run(3600))
    another = asyncio.get_running_loop().create_future()
    another.set_result("new")
    part: Any = type("Part", (), {"app": None, "job": job, "log_id": "old"})

    with pytest.raises(LeftError):
        await process._Worker(AggregatorConfig.from_env({}))._watch(part, writing, another)  # type: ignore[arg-type]
    job.close()

    assert table.totals() == expected(log)
    assert [(1, True)] == [(code, "its id is new, was old" in why) for code, why in said]
