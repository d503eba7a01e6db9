"""Both stages as processes, on a real broker and database: exact through kills and rebalances of either."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.aggregator.signalling import Signalling, assert_same
from tests.logfill import Fill, send_messages
from tests.services import KafkaService


@pytest.fixture
def scene(apache_broker: KafkaService, database_dsn: str, tmp_path: Path) -> Iterator[Signalling]:
    """A broker, a database and no worker yet."""
    made = Signalling(apache_broker.bootstrap, database_dsn, tmp_path)
    yield made
    made.close()


def _fill() -> Fill:
    """Of the last minutes: what is older is no signal."""
    start_s = int(time.time()) // 60 * 60 - 5 * 60
    return Fill(decisions=90_000, block=500, copies=6, callers=200, minutes=3, start_us=start_s * 1_000_000)


def test_signals_are_exact_through_kills_and_a_rebalance_of_both_stages(scene: Signalling) -> None:
    """kill -9 between an INSERT and its telling, or between a telling and what came of it: nothing is missed."""
    fill = _fill()
    messages = list(fill.messages())
    part = len(messages) // 3
    first, second = scene.worker(), scene.second_stage()
    second.wait_for_log("watching")
    send_messages(scene.bootstrap, messages[:part])
    scene.wait_signalled(part * fill.block // 4)
    first.kill()
    second.kill()

    first, second = scene.worker(), scene.second_stage()
    send_messages(scene.bootstrap, messages[part : 2 * part])
    scene.wait_signalled(part * fill.block)
    third = scene.second_stage()
    third.wait_for_log("watching")
    second.kill()
    send_messages(scene.bootstrap, messages[2 * part :])
    scene.wait_signalled(fill.total)

    assert_same(scene, fill)
    assert (first.stop(), third.stop()) == (0, 0), first.log + third.log
