"""Faust's Kafka consumer, held to what is stored: it commits that and nothing else.

Faust books offsets as acknowledged that nobody acknowledged: a jump in the delivery (`Consumer._add_gap`), and every
message that it discards around a rebalance (its stream acknowledges what it skips). Its commit could so run ahead of
the database. This subclass takes the offset to commit from the job instead. And Faust drops what it has read before,
though it was told to read it again; the job knows that better. It stands on private methods of one exact release, and
`tests/unit/aggregator/test_faust_guard.py` fails if their meaning changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import faust
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from enforcer.errors import ConfigError

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer

_FETCH_WAIT = "_fetch_max_wait_ms"


def guard(app: faust.App, durable: Mapping[int, int], *, fetch_wait_ms: int | None) -> None:
    """Make the app, before it starts, commit what `durable` says (partition -> offset) and nothing else.

    Args:
        app: a Faust app that reads one topic.
        durable: the live mapping of what is stored; a partition that is absent is not committed.
        fetch_wait_ms: how long the broker may hold a fetch; None leaves Faust's 1,500 ms. An embedded broker that
            holds fetches to the end answers late by that much; Apache Kafka answers as soon as there is data.
    """

    class Thread(driver.AIOKafkaConsumerThread):
        def _create_worker_consumer(self, transport: driver.Transport) -> AIOKafkaConsumer:
            consumer = super()._create_worker_consumer(transport)
            if fetch_wait_ms is not None:
                set_fetch_wait(consumer, fetch_wait_ms)
            return consumer

    class Consumer(driver.Consumer):
        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__(*args, **named)
            self._read_offset = Unread()

        def _new_consumer_thread(self) -> Thread:
            return Thread(self, loop=self.loop, beacon=self.beacon)

        async def _add_gap(self, tp: TP, offset_from: int, offset_to: int) -> None:
            """A jump in the delivery acknowledges nothing."""

        def _new_offset(self, tp: TP) -> int | None:
            """The offset to commit is what is stored, whatever was acknowledged."""
            self._acked[tp].clear()
            self._acked_index[tp].clear()
            return durable.get(tp.partition)

    class Transport(driver.Transport):
        pass

    Transport.Consumer = Consumer
    app.transport = Transport(app.conf.broker_consumer, app)


class Unread(dict[TP, int | None]):
    """Where Faust keeps the last offset that it has read of each partition, and drops what comes below: never any."""

    def __getitem__(self, _tp: TP) -> None:
        """Whatever was put there."""
        return


def set_fetch_wait(consumer: Any, fetch_wait_ms: int) -> None:
    """Set it on an aiokafka consumer that has not started.

    Raises:
        ConfigError: this release of aiokafka keeps it elsewhere, so it cannot be set.
    """
    if not isinstance(getattr(consumer, _FETCH_WAIT, None), int):
        raise ConfigError(
            f"TALLYGATE_FETCH_WAIT_MS is {fetch_wait_ms}; allowed: nothing, with this release of aiokafka "
            f"({type(consumer).__name__} has no {_FETCH_WAIT})"
        )
    setattr(consumer, _FETCH_WAIT, fetch_wait_ms)
