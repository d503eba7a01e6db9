"""Counts the live totals of a shadow anew from the log, by the worker's own job.

Never writes into the table in use, commits no offset of anybody, and writes no total of a caller that was erased.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import cast

import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from aggregator.broker import LogUnavailable
from aggregator.config import AggregatorConfig
from aggregator.core.live.rows import Cut
from aggregator.core.record.acceptance import Accepted, accept_block
from aggregator.core.record.erased import Erased
from aggregator.erasure.known import erased
from aggregator.recorder.messages import taken_from
from aggregator.store import Store
from aggregator.store_clickhouse import ClickHouseStore
from aggregator.worker.job import LiveJob
from aggregator.worker.log_view import KafkaView
from aggregator.worker.ports import LogMessage
from aggregator.worker.table import LiveStore
from stream.contract.topics import DECISIONS

_AT_ONCE = 500
_TIMEOUT_S = 30.0
_FLUSH_S = 1.0
#: Kinds of rows that name a caller.
_OF_CALLERS = ("usage", "caller")


@dataclass(frozen=True, slots=True)
class _Read:
    """A message of the log; nobody waits for its acknowledgement."""

    partition: int
    offset: int
    value: bytes
    timestamp_s: float
    appended_us: int | None

    def ack(self) -> None:
        """Nothing: no offset is anybody's."""


class SiftedLive(LiveStore):
    """The `live` table of a shadow, without what was erased."""

    def __init__(self, store: Store, known: Erased) -> None:
        super().__init__(store)
        self._known = known

    def rows_of(self, cuts: Iterable[Cut]) -> pa.Table:
        """See `LiveStore.rows_of`."""
        return sifted(super().rows_of(cuts), self._known)


def sifted(rows: pa.Table, known: Erased) -> pa.Table:
    """Rows of `live` without those of erased callers' minutes that began before the erasure."""
    if not known.erasures:
        return rows
    columns = (rows.column(name).to_pylist() for name in ("kind", "caller", "minute"))
    kept = [
        kind not in _OF_CALLERS or not known.holds(caller, int(minute.timestamp()) * 1_000_000)
        for kind, caller, minute in zip(*columns, strict=True)
    ]
    left = rows.filter(pa.array(kept, pa.bool_()))
    # Anew: a dictionary that still had the name would bring it to the database.
    names = left.column("caller").cast(pa.string()).dictionary_encode()
    return left.set_column(left.schema.get_field_index("caller"), "caller", names)


def count_live(
    config: AggregatorConfig, recorded: Mapping[tuple[str, int, str], int], progress: Callable[[str], None]
) -> None:
    """Count the decisions of the log into `live` of the database of `config`, as far as its record goes (`journaled`).

    Raises:
        LogUnavailable: the broker does not give it.
        StoreRefused: the table is not what this release expects.
    """
    ends = {partition: end for (topic, partition, _), end in recorded.items() if topic == DECISIONS.name}
    asyncio.run(_count(config, ends, progress))


async def _count(config: AggregatorConfig, ends: Mapping[int, int], progress: Callable[[str], None]) -> None:
    store = ClickHouseStore.open(config.clickhouse)
    table = SiftedLive(store, erased(store))
    job = LiveJob(table, KafkaView(config.kafka, DECISIONS.name), decode=_accepted, now_s=time.monotonic)
    writing = asyncio.create_task(job.run(_FLUSH_S))
    consumer = Consumer({"bootstrap.servers": config.kafka, "group.id": "tallygate-replay-looks", "log_level": 2})
    try:
        for partition, end in ends.items():
            await _take(job, consumer, partition, end, writing)
            progress(f"live totals: {job.stats.decisions:,} decisions counted, partition {partition} done")
        await job.flush(wanted=lambda: True)
    except KafkaException as error:
        raise LogUnavailable(f"Kafka at {config.kafka} (TALLYGATE_KAFKA) does not answer: {error}") from error
    finally:
        job.stop_taking()
        await asyncio.gather(writing, return_exceptions=True)
        job.close()
        consumer.close()
        table.close()


async def _take(job: LiveJob, consumer: Consumer, partition: int, end: int, writing: asyncio.Task[None]) -> None:
    if not end:
        return
    consumer.assign([TopicPartition(DECISIONS.name, partition, 0)])
    due, heard_s = 0, time.monotonic()
    while due < end:
        if writing.done():
            # It only ends by what the table refused.
            writing.result()
        messages = await asyncio.to_thread(consumer.consume, _AT_ONCE, 1.0)
        for message in messages:
            if (fault := message.error()) is not None:
                raise KafkaException(fault)
            due = int(message.offset() or 0) + 1
            if due <= end:
                await job.take(cast("LogMessage", _read(message)))
        torn = job.torn().get(partition)
        if torn is not None:
            # Shown late, or not there at all, which the job finds out.
            due = torn
            consumer.seek(TopicPartition(DECISIONS.name, partition, torn))
        heard_s = time.monotonic() if messages else heard_s
        if time.monotonic() - heard_s > _TIMEOUT_S:
            raise LogUnavailable(f"partition {partition} of {DECISIONS.name} gives nothing from offset {due} on")
    if job.positions.get(partition, 0) < end:
        raise LogUnavailable(f"partition {partition} of {DECISIONS.name} was counted to {job.positions.get(partition)}")


def _read(message: Message) -> _Read:
    taken = taken_from(message)
    _, unix_ms = message.timestamp()
    return _Read(taken.place.partition, taken.place.offset, taken.value, unix_ms / 1_000, taken.appended_us)


def _accepted(message: LogMessage) -> Accepted:
    return accept_block(message.value, appended_us=message.appended_us)
