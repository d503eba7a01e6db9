"""The guard stands on private methods of exact releases: these tests fail when a release changes what they mean."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from importlib.metadata import version
from typing import Any
from unittest.mock import Mock

import aiokafka
import faust
import pytest
from faust.transport.consumer import Consumer as BaseConsumer
from faust.types import TP

from aggregator.worker.faust_guard import guard, set_fetch_wait
from enforcer.errors import ConfigError
from tests.faust_apps import idle_app

PLACE = TP("decisions", 3)


@pytest.fixture
async def app() -> AsyncIterator[faust.App]:
    with idle_app() as made:
        yield made


def _consumer(app: faust.App, durable: dict[int, int], fetch_wait_ms: int | None = None) -> Any:
    guard(app, durable, fetch_wait_ms=fetch_wait_ms)
    consumer: Any = app.transport.create_consumer(
        callback=app.topics.on_message, on_partitions_revoked=None, on_partitions_assigned=None
    )
    return consumer


def test_the_releases_are_the_ones_that_the_guard_was_written_for() -> None:
    """Another release may book offsets elsewhere: read its consumer before this line is changed."""
    assert (version("faust-streaming"), version("aiokafka")) == ("0.15.3", "0.14.0")


async def test_unguarded_faust_commits_over_a_jump_in_the_delivery(app: faust.App) -> None:
    """The reason for the guard: if this fails, the release no longer books a gap as acknowledged."""
    consumer: Any = app.transport.create_consumer(
        callback=app.topics.on_message, on_partitions_revoked=None, on_partitions_assigned=None
    )
    consumer._committed_offset[PLACE] = 5
    await consumer._add_gap(PLACE, 5, 9)
    consumer._acked[PLACE].extend([10, 11])

    assert consumer._new_offset(PLACE) == 12


async def test_unguarded_faust_commits_what_it_acknowledged_without_anybody_asking(app: faust.App) -> None:
    """Its stream acknowledges the messages that it throws away around a rebalance; they would count as done."""
    source = inspect.getsource(faust.Stream._py_aiter)

    assert "message.generation_id != self.app.consumer_generation_id" in source
    assert "if event is not None and (do_ack or value is skipped_value):" in source


async def test_guarded_consumer_commits_what_is_stored_and_nothing_else(app: faust.App) -> None:
    """However many acknowledgements and gaps Faust has booked, the commit is the position in the database."""
    durable: dict[int, int] = {}
    consumer = _consumer(app, durable)
    consumer._committed_offset[PLACE] = 5
    await consumer._add_gap(PLACE, 5, 9)

    commits = []
    for stored in (None, 7, 7, 11):
        if stored is not None:
            durable[PLACE.partition] = stored
        consumer._acked[PLACE].extend([10, 11])
        consumer._acked_index[PLACE].update([10, 11])
        commits.append(consumer._filter_committable_offsets([PLACE]).get(PLACE))
        consumer._committed_offset[PLACE] = commits[-1] or consumer._committed_offset[PLACE]

    assert commits == [None, 7, None, 11]
    assert not consumer._gap[PLACE]


async def test_guarded_consumer_still_notices_acknowledgements(app: faust.App) -> None:
    """Faust commits only partitions with acknowledgements in its book: `ack` must go on filling it after a commit."""
    consumer = _consumer(app, {PLACE.partition: 2})
    topics: Any = app.topics
    topics._acking_topics.add(PLACE.topic)

    for offset in (0, 1, 0):
        message = Mock(acked=False, tp=PLACE, topic=PLACE.topic, offset=offset)
        consumer.ack(message)
        assert list(consumer._filter_tps_with_pending_acks()) == [PLACE]
        assert consumer._acked[PLACE] == [offset]
        consumer._filter_committable_offsets([PLACE])


def test_the_guarded_methods_are_called_as_the_guard_expects() -> None:
    """An override that nobody calls any more guards nothing."""
    assert list(inspect.signature(BaseConsumer._add_gap).parameters) == ["self", "tp", "offset_from", "offset_to"]
    assert list(inspect.signature(BaseConsumer._new_offset).parameters) == ["self", "tp"]
    assert "await self._add_gap(tp, r_offset + 1, offset)" in inspect.getsource(BaseConsumer._drain_messages)
    assert "self._new_offset(tp)" in inspect.getsource(BaseConsumer._filter_committable_offsets)


@pytest.mark.parametrize(("asked_ms", "expected_ms"), [(None, 1500), (100, 100)])
async def test_guard_sets_the_fetch_wait_only_when_asked(
    app: faust.App, asked_ms: int | None, expected_ms: int
) -> None:
    """Faust fixes 1,500 ms; the embedded broker holds every fetch that long."""
    consumer = _consumer(app, {}, asked_ms)
    thread = consumer._new_consumer_thread()

    real = thread._create_worker_consumer(app.transport)

    real._closed = True  # It was never started, and has nothing to close.
    assert real._fetch_max_wait_ms == expected_ms


def test_aiokafka_reads_the_fetch_wait_when_it_starts() -> None:
    """The attribute is set between construction and start; if start no longer reads it, the setting does nothing."""
    assert "fetch_max_wait_ms=self._fetch_max_wait_ms" in inspect.getsource(aiokafka.AIOKafkaConsumer.start)


def test_set_fetch_wait_refuses_a_client_that_keeps_it_elsewhere() -> None:
    """Better no start than a setting that silently does nothing."""
    with pytest.raises(ConfigError, match="TALLYGATE_FETCH_WAIT_MS is 100"):
        set_fetch_wait(object(), 100)


async def test_guarded_consumer_hands_on_what_it_has_read_before(app: faust.App) -> None:
    """A message that was shown late is read again with those that came before it: Faust would drop them."""
    assert "r_offset is None or offset >= r_offset" in inspect.getsource(BaseConsumer._drain_messages)
    consumer = _consumer(app, {})
    consumer._read_offset[PLACE] = 12

    assert consumer._read_offset[PLACE] is None
