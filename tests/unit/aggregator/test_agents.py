from __future__ import annotations

from collections.abc import AsyncIterator

import faust
import pytest

from aggregator.core.record.acceptance import accept_block
from aggregator.worker.agents import add_agent
from aggregator.worker.job import LiveJob
from aggregator.worker.ports import LogMessage
from tests.faust_apps import idle_app
from tests.live_blocks import Decision, block
from tests.live_job import Clock, MemoryLog, always, job_on
from tests.live_table import MemoryTable


@pytest.fixture
async def app() -> AsyncIterator[faust.App]:
    """An app that takes messages without having been started: no broker is contacted."""
    with idle_app() as made:
        made.finalize()
        made.flow_control.resume()
        yield made


def _topic(app: faust.App) -> faust.TopicT:
    return app.topic("decisions", value_type=bytes, key_serializer="raw", value_serializer="raw")


async def test_agent_leaves_the_acknowledgement_to_the_job(app: faust.App) -> None:
    """Faust's own acknowledgement comes when the agent asks for the next message: before anything is stored."""
    log, table = MemoryLog(), MemoryTable()
    log.append(0, *(block([Decision()], first_seq=place) for place in range(3)))
    job = job_on(log, table, now_s=Clock())
    agent = add_agent(app, _topic(app), job.take, name="live_totals")

    async with agent.test_context() as under_test:
        events = [await under_test.put(f"0 {offset}".encode()) for offset in range(3)]
        before = [event.message.acked for event in events]
        await job.flush(wanted=always)
        after = [event.message.acked for event in events]
    job.close()

    assert (before, after) == ([False] * 3, [True] * 3)
    assert table.progress(0) == [("log", 3, 0)]


async def test_agent_hands_on_a_message_without_a_value_as_no_block(app: faust.App) -> None:
    """A tombstone on the topic is corrupt, not a crash."""
    seen: list[LogMessage] = []

    async def take(message: LogMessage) -> None:
        seen.append(message)

    agent = add_agent(app, _topic(app), take, name="live_totals")
    async with agent.test_context() as under_test:
        await under_test.put(None)

    assert [message.value for message in seen] == [b""]


async def test_agent_lets_a_fault_of_the_job_out(app: faust.App) -> None:
    """A fault that stays inside the agent leaves a worker that looks alive and counts nothing."""

    async def take(_: LogMessage) -> None:
        raise RuntimeError("the table is of another release")

    agent = add_agent(app, _topic(app), take, name="live_totals")
    with pytest.raises(RuntimeError, match="another release"):
        async with agent.test_context() as under_test:
            await under_test.put(b"x")


def test_job_and_codec_fit(app: faust.App) -> None:
    """What the job calls a block's bytes is what the codec reads."""
    job = LiveJob(
        MemoryTable(), MemoryLog(), decode=lambda message: accept_block(message.value, appended_us=None), now_s=Clock()
    )
    job.close()
