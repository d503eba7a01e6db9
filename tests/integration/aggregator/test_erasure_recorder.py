"""Erasures and recorders that work at the same time, on a real engine: what was recorded too late goes again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from aggregator.config import parse_dsn
from aggregator.core.record.pending import Pending
from aggregator.erasure import erasing, places
from aggregator.erasure.again import note
from aggregator.erasure.known import stated
from aggregator.recorder.dead_letters import DeadLetterTopic
from aggregator.recorder.erasures import Erasures
from aggregator.recorder.writer import Writer
from aggregator.settler.process import passes
from aggregator.store import StoreRefused
from aggregator.store_clickhouse import ClickHouseStore
from stream.contract.topics import DECISIONS
from tests.recordblocks import Made, at, make_block
from tests.recordrows import erased_seqs
from tests.settling import SettlingScene, utc_us

NAME = "acme-to-be-erased"
AT, LATER = "2026-06-01T10:00", "2026-06-02T11:00"
LOG = logging.getLogger("test")


class Interrupted(ClickHouseStore):
    """A store on which something happens before and after decisions are written."""

    before: Callable[[], object] = bool
    after: Callable[[], object] = bool

    def insert(self, table: str, batch: pa.Table, *, token: str | None = None) -> None:
        if table == "decisions":
            self.before()
        super().insert(table, batch, token=token)
        if table == "decisions":
            self.after()


@pytest.fixture
def scene(database_dsn: str) -> Iterator[SettlingScene]:
    """A caller that is on record."""
    made = SettlingScene(database_dsn)
    made.flush(*made.decisions(5, AT, caller=NAME), stored_at="2026-06-01T10:00:01")
    yield made
    made.close()


def _record(scene: SettlingScene, *, before: Callable[[], object] = bool, after: Callable[[], object] = bool) -> None:
    """What a recorder does that starts now: a block of that caller and another one."""
    topic = DeadLetterTopic("127.0.0.1:1", LOG)
    flush = Pending({DECISIONS.name: "log-1"})
    made = [Made((NAME, "marlow")[n % 2], utc_us(AT) + n, limit="rate") for n in range(20)]
    flush.blocks.append(at(make_block(made, copy_id="gw-7", epoch=3, sealed_at_us=utc_us(AT) + 100), 40))
    flush.first_offsets[DECISIONS.name, 0], flush.next_offsets[DECISIONS.name, 0] = 40, 41

    def open_store() -> ClickHouseStore:
        store = Interrupted.open(parse_dsn(scene.dsn))
        assert isinstance(store, Interrupted)
        store.before, store.after = before, after
        return store

    writer = Writer(open_store, topic, LOG, unix_us=lambda: utc_us(AT), erasures=Erasures(lambda: 0.0))
    writer.start(flush)
    assert writer.wait(60)
    assert writer.take_written() is flush


def _erase(scene: SettlingScene) -> None:
    one = erasing.erase(scene.store, NAME, requested_by="desk", reason="request", progress=lambda _: None)
    assert one is not None
    assert "done" == one.state


def _is_gone(scene: SettlingScene) -> None:
    """Once a settler has run, nothing is there but what was the other's, and the numbers that went."""
    assert places.counted(scene.store, NAME).keys() >= {"decisions"}
    scene.settle(LATER, scene.settler(made=passes()))
    assert {} == places.counted(scene.store, NAME)
    assert [] == scene.rows("SELECT * FROM erasing")
    assert scene.totals() == {("marlow", AT, "/cards/{id}"): (10, 10, 10)}
    assert list(range(0, 20, 2)) == erased_seqs(scene.store, "gw-7", 3)


def test_what_a_recorder_wrote_that_had_not_heard_of_an_erasure_goes_again(scene: SettlingScene) -> None:
    """It asks once a second, and a flush takes a second: of a caller that asks up to the end there is always one."""
    _record(scene, before=lambda: _erase(scene))
    _is_gone(scene)
    note(scene.store, [(one.erasure, NAME) for one in stated(scene.store)])
    assert erasing.erase(scene.store, NAME, requested_by="desk", reason="again", progress=lambda _: None) is None
    assert [] == scene.rows("SELECT * FROM erasing"), "no name is left where no settler runs"


def test_what_a_recorder_wrote_that_was_killed_before_it_had_heard_goes_when_the_log_is_read_again(
    scene: SettlingScene,
) -> None:
    """The decisions stand there without their block: read again, the block is new, and the caller's are left out."""

    def killed() -> None:
        raise StoreRefused("killed")

    with pytest.raises(StoreRefused):
        _record(scene, before=lambda: _erase(scene), after=killed)
    _record(scene)
    _is_gone(scene)
