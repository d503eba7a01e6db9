"""A record whose database does what a test says, and a loop whose clock a test turns."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import OperationalError

from aggregator.config import parse_dsn
from dashboard.store import Limits, Record, RecordUnavailable

#: Real seconds after which a test that hangs fails.
HANG_S = 20.0


class HandClock:
    """Seconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def read(self) -> float:
        """As `loop.time`."""
        return self.now_s

    def now_us(self) -> int:
        """The same as unix microseconds."""
        return int(self.now_s * 1_000_000)


@dataclass
class _Answer:
    result_rows: Sequence[tuple[Any, ...]]


class ScriptedRecord(Record):
    """Its database is there or not, and holds back the answers to pages for as long as a test wants.

    Attributes:
        refuses: nobody listens.
        released: set while queries of pages are answered; cleared to hold them back.
        asks: how often somebody turned to the database, connecting included.
        reading, most: queries of pages held at this moment, and the most there ever were.
    """

    def __init__(self) -> None:
        super().__init__(parse_dsn("http://127.0.0.1:1/scripted"), Limits())
        self.refuses = False
        self.released = threading.Event()
        self.released.set()
        self.begun = threading.Semaphore(0)
        self.ended = threading.Semaphore(0)
        self.asks = self.reading = self.most = 0
        self._counting = threading.Lock()

    def _connect(self, silence_s: float) -> Client:
        if self.refuses:
            with self._counting:
                self.asks += 1
            raise RecordUnavailable("nobody listens")
        return cast("Client", _ScriptedClient(self))

    def query(self, sql: str) -> _Answer:
        """One query, held back if it is a page's."""
        with self._counting:
            self.asks += 1
        if self.refuses:
            raise OperationalError("connection refused")
        if sql == "SELECT 1":
            return _Answer([(1,)])
        with self._counting:
            self.reading += 1
            self.most = max(self.most, self.reading)
        self.begun.release()
        assert self.released.wait(HANG_S)
        with self._counting:
            self.reading -= 1
        return _Answer([])


class _ScriptedClient:
    def __init__(self, record: ScriptedRecord) -> None:
        self._record = record

    def query(self, sql: str, **_: object) -> _Answer:
        return self._record.query(sql)

    def close(self) -> None:
        pass


def two_queries(record: Record) -> str:
    """A page of two queries."""
    assert isinstance(record, ScriptedRecord)
    try:
        with record.of_fleet() as ask:
            ask("fleet_complete", from_s=0, to_s=0, since_s=0)
            ask("fleet_stand", from_s=0, to_s=0, topic="")
        return "figures"
    finally:
        record.ended.release()
