"""The worker's process as it ends: in time, whatever hangs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from aggregator.config import AggregatorConfig
from aggregator.worker import process, running
from tests.live_job import MemoryLog, job_on
from tests.live_table import MemoryTable


class _LeftError(Exception):
    """The process ended."""


class _App:
    """A Faust app of which one act never ends."""

    def __init__(self, hangs: str) -> None:
        self._hangs = hangs
        self.consumer = self
        self.done: list[str] = []

    async def commit(self) -> None:
        await self._act("commit")

    async def stop(self) -> None:
        await self._act("stop")

    async def _act(self, name: str) -> None:
        if name == self._hangs:
            await asyncio.Event().wait()
        self.done.append(name)


@pytest.mark.parametrize(("hangs", "stop_s", "done"), [("commit", 0.02, []), ("nothing", 60, ["commit", "stop"])])
async def test_worker_ends_within_one_limit_whatever_hangs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, hangs: str, stop_s: float, done: list[str]
) -> None:
    """A supervisor gives some fifteen seconds for all of it, and kills then."""
    codes: list[int] = []

    def leave(_why: str, *, code: int = 1) -> None:
        codes.append(code)
        raise _LeftError

    monkeypatch.setattr(running, "_leave", leave)
    monkeypatch.setattr(running, "_STOP_S", stop_s)
    monkeypatch.setattr(running, "_APP_STOP_S", 0.0)
    app: Any = _App(hangs)
    job = job_on(MemoryLog(), MemoryTable(), now_s=asyncio.get_running_loop().time)
    config = AggregatorConfig.from_env({"TALLYGATE_STATE_DIR": str(tmp_path)})
    writing = asyncio.create_task(job.run(3600))

    ended = process._Worker(config)._end(app, job, writing)
    if hangs == "nothing":
        await ended
    else:
        with pytest.raises(_LeftError):
            await asyncio.wait_for(ended, 10)
    job.close()

    assert (app.done, codes) == (done, [] if hangs == "nothing" else [0])


def test_worker_ends_before_its_supervisor_kills_it() -> None:
    """Supervisors often give fifteen seconds, and the process needs some for itself."""
    assert running._STOP_S <= 13


async def test_a_worker_that_waits_for_its_broker_ends_when_it_is_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faust waits as long as the broker is away, and once nothing but kill -9 ended it then."""

    class Waiting:
        async def start(self) -> None:
            await asyncio.Event().wait()

    said: list[tuple[int, str]] = []

    def leave(why: str, *, code: int = 1) -> None:
        said.append((code, why))
        raise _LeftError

    monkeypatch.setattr(running, "_leave", leave)
    app: Any = Waiting()
    one = process._Worker(AggregatorConfig.from_env({}))
    one._on_signal()
    with pytest.raises(_LeftError):
        await one._start(app)
    assert said == [(0, "stopped before the consumer had started; nothing was taken")]
