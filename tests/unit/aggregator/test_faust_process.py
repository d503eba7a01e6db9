"""A Faust process before Faust is started: what it waits for, and what it does not."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from aiokafka.errors import IllegalStateError
from faust.types import TP

from aggregator.broker import LogUnavailable
from aggregator.config import AggregatorConfig
from aggregator.store import StoreRefused, StoreUnavailable
from aggregator.worker.part import FaustPart
from aggregator.worker.running import FaustProcess, read_again

_PART = cast(FaustPart, object())


class _Process(FaustProcess):
    """Fails to connect as often as it is told to."""

    def __init__(self, faults: list[Exception], *, start_timeout_s: int = 60) -> None:
        super().__init__(AggregatorConfig.from_env({"TALLYGATE_START_TIMEOUT_S": str(start_timeout_s)}))
        self.faults = faults

    async def _build(self) -> FaustPart:
        if self.faults:
            raise self.faults.pop(0)
        return _PART

    async def built(self) -> FaustPart | None:
        """What it has made before it joins its group."""
        return await self._built()

    def stop(self) -> None:
        """As a signal does."""
        self._on_signal()


async def test_process_waits_for_what_falls_silent_after_it_had_answered() -> None:
    """A broker that was slow for one question ended the second stage for good, where nobody restarts it."""
    process = _Process([LogUnavailable("no answer"), StoreUnavailable("away")])
    assert _PART is await process.built()
    assert [] == process.faults


async def test_process_does_not_wait_longer_than_it_was_told() -> None:
    """A supervisor learns of a wrong address from the exit code."""
    with pytest.raises(LogUnavailable, match="no answer"):
        await _Process([LogUnavailable("no answer")], start_timeout_s=0).built()


async def test_process_does_not_wait_for_what_waiting_does_not_help() -> None:
    """A refusal stays one."""
    with pytest.raises(StoreRefused, match="unknown user"):
        await _Process([StoreRefused("unknown user")]).built()


async def test_process_that_is_stopped_while_it_waits_makes_nothing() -> None:
    """A stop may take seconds, not a minute."""
    process = _Process([LogUnavailable("no answer")] * 1_000)
    building = asyncio.create_task(process.built())
    await asyncio.sleep(0)
    process.stop()
    assert await building is None


class _Consumer:
    """Faust's consumer, as far as it is told where to read on."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.consumer = self
        self.fault = fault
        self.asked: list[dict[TP, int]] = []

    async def seek_wait(self, places: dict[TP, int]) -> None:
        self.asked.append(places)
        if self.fault is not None:
            raise self.fault


async def test_what_is_missing_in_the_delivery_is_read_again() -> None:
    """The live totals stood for twenty seconds, until a restart read it."""
    app: Any = _Consumer()
    await read_again(app, "t", {})
    await read_again(app, "t", {3: 7, 4: 9})
    assert app.asked == [{TP("t", 3): 7, TP("t", 4): 9}]


async def test_what_cannot_be_read_again_yet_does_not_end_the_process(caplog: pytest.LogCaptureFixture) -> None:
    """The partition may just be on its way to another worker."""
    app: Any = _Consumer(IllegalStateError("not assigned"))
    await read_again(app, "t", {3: 7})
    assert "cannot be read again yet" in caplog.text
