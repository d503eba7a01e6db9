"""Erasures and settlers that work at the same time, on a real engine: nothing comes back, and nothing else goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from aggregator.config import parse_dsn
from aggregator.core.record.erased import Erasure, who_hash
from aggregator.erasure import again, erasing, places, removing
from aggregator.erasure.again import forget, note
from aggregator.erasure.known import Stated, stated
from aggregator.settler.process import passes
from aggregator.store import StoreRefused
from aggregator.store_clickhouse import ClickHouseStore
from tests.settling import SettlingScene, utc_us

NAME = "acme-to-be-erased"
SALT = b"0123456789abcdef"
AT, LATER = "2026-06-01T10:00", "2026-06-02T11:00"
#: Every total that a settler writes of a caller.
WRITTEN_BACK = (
    ("settled_minutes", "minute", f"{AT}:00"),
    ("grant_minutes", "minute", f"{AT}:00"),
    ("fairness", "minute", f"{AT}:00"),
    ("quarters", "quarter", f"{AT}:00"),
    ("ledger_hours", "hour", f"{AT}:00"),
    ("settled_days", "day", "2026-06-01"),
    ("disagreements", "minute", f"{AT}:00"),
)


class Interrupted(ClickHouseStore):
    """A store on which something happens after decisions were read, before their totals are written."""

    between: Callable[[], object] | None = None

    def insert(self, table: str, batch: pa.Table, *, token: str | None = None) -> None:
        if table == "settled_minutes" and self.between is not None:
            act, self.between = self.between, None
            act()
        super().insert(table, batch, token=token)


@pytest.fixture
def scene(database_dsn: str) -> Iterator[SettlingScene]:
    """A minute of two callers, on record."""
    made = SettlingScene(database_dsn)
    made.flush(
        *made.decisions(5, AT, caller=NAME), *made.decisions(3, AT, caller="marlow"), stored_at="2026-06-01T10:00:01"
    )
    yield made
    made.close()


def erase(scene: SettlingScene) -> Stated | None:
    """As an operator does."""
    return erasing.erase(scene.store, NAME, requested_by="desk", reason="request", progress=lambda _: None)


def write_back(scene: SettlingScene) -> None:
    """What a settler that had read before would have written of the caller."""
    for table, unit, at in WRITTEN_BACK:
        kind = ", kind" if table in {"quarters", "disagreements"} else ""
        value = {"quarters": ", 'usage'", "disagreements": ", 'live'"}.get(table, "")
        scene.store.command(f"INSERT INTO {table} (caller, {unit}{kind}) VALUES ('{NAME}', '{at}'{value})")


def others(scene: SettlingScene) -> list[Any]:
    """All totals of the other caller, and of all."""
    return [
        scene.rows(f"SELECT * FROM {table} WHERE caller = 'marlow' ORDER BY ALL")
        for table in ("settled_minutes", "settled_days", "grant_minutes", "fairness", "ledger_hours", "quarters")
    ] + [scene.rows("SELECT * FROM settled_fleet ORDER BY ALL")]


def test_settler_that_had_read_before_an_erasure_takes_back_what_it_writes_after(
    scene: SettlingScene, caplog: pytest.LogCaptureFixture
) -> None:
    """The erasure was reported done; the caller's totals would have stood in bills and pages for years."""
    store = Interrupted.open(parse_dsn(scene.dsn))
    assert isinstance(store, Interrupted)
    done: list[Stated | None] = []
    store.between = lambda: done.append(erase(scene))
    scene.settle(LATER, scene.settler(store=store, made=passes()))
    store.close()
    assert ["done"] == [one.state for one in done if one is not None]
    assert {} == places.counted(scene.store, NAME)
    assert [] == scene.rows("SELECT * FROM erasing")
    assert scene.totals() == {("marlow", AT, "GET /"): (3, 3, 3)}
    assert "rows had come back, deleted: " in caplog.text
    assert "settled_minutes 1" in caplog.text
    assert NAME not in caplog.text


def test_what_a_killed_settler_wrote_back_is_found_by_the_next_one(scene: SettlingScene) -> None:
    """It was killed between its rows and its second look, and nobody repeats its round."""
    scene.settle(LATER, scene.settler(made=passes()))
    before = others(scene)
    assert erase(scene) is not None
    write_back(scene)
    found = places.counted(scene.store, NAME)
    assert {table for table, *_ in WRITTEN_BACK} == found.keys()
    scene.settle("2026-06-02T11:10", scene.settler(made=passes()))
    assert {} == places.counted(scene.store, NAME)
    assert before == others(scene)


@pytest.mark.parametrize("step", ["forget", "take_out"])
def test_word_that_is_left_while_earlier_word_is_taken_back_is_heeded(
    scene: SettlingScene, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both stand under one number, so the later goes with the earlier; facts are in no total that would show them."""
    settler = scene.settle(LATER, scene.settler(made=passes()))
    erased = erase(scene)
    assert erased is not None
    if step == "take_out":
        scene.flush(*scene.decisions(1, AT, caller=NAME), stored_at=f"{AT}:02", journal=False)
    note(scene.store, [(erased.erasure, NAME)])
    done = getattr(again, step)

    def a_recorder_writes_just_then(*args: Any, **named: Any) -> Any:
        monkeypatch.setattr(again, step, done)
        said = done(*args, **named)
        scene.flush(*scene.decisions(2, AT, caller=NAME), stored_at=f"{AT}:03", journal=False)
        # As if its word had come a moment earlier.
        note(scene.store, [(erased.erasure, NAME)])
        forget(scene.store, erased.erasure)
        return said

    monkeypatch.setattr(again, step, a_recorder_writes_just_then)
    scene.settle("2026-06-02T11:00:10", settler)
    assert done is getattr(again, step)
    scene.settle("2026-06-02T11:00:20", settler)
    assert {} == places.counted(scene.store, NAME)
    assert [] == scene.rows("SELECT * FROM erasing")


def test_erasure_is_done_only_when_no_total_has_come_back(
    scene: SettlingScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Facts alone do not tell: totals were written behind the deletion, of a caller that has nothing on record."""
    real, deleted = removing._delete, list[int]()

    def delete(*words: Any, **named: Any) -> None:
        real(*words, **named)
        deleted.append(len(deleted))
        if len(deleted) == 1:
            write_back(scene)

    monkeypatch.setattr(removing, "_delete", delete)
    one = erase(scene)
    assert one is not None
    assert ("done", [0, 1]) == (one.state, deleted)
    assert {} == places.counted(scene.store, NAME)


def test_settler_counts_nothing_that_is_being_erased_and_all_that_the_caller_does_since(scene: SettlingScene) -> None:
    """Deleting takes minutes where there is much; whoever goes on must not lose what was settled meanwhile."""
    begun_us = utc_us(f"{AT}:30")
    erasure = Erasure(7, begun_us, SALT, who_hash(SALT, NAME))
    erasing._state(scene.store, Stated(erasure, "begun", "desk", "request", begun_us, {}), "begun", {})
    scene.flush(*scene.decisions(4, f"{AT}:40", caller=NAME), stored_at=f"{AT}:41")
    scene.flush(*scene.decisions(6, "2026-06-01T10:01:10", caller=NAME), stored_at="2026-06-01T10:01:11")
    settler = scene.settle("2026-06-01T10:03", scene.settler(made=passes()))
    since = {(NAME, AT, "GET /"): (4, 4, 4), (NAME, "2026-06-01T10:01", "GET /"): (6, 6, 6)}
    assert scene.totals() == {**since, ("marlow", AT, "GET /"): (3, 3, 3)}
    assert scene.rows("SELECT sum(spent) FROM grant_minutes FINAL WHERE caller = {c:String}", c=NAME) == [(10,)]
    one = erase(scene)
    assert one is not None
    assert ("done", 5) == (one.state, one.removed["decisions"])
    scene.settle("2026-06-01T10:04", settler)
    assert scene.totals() == {**since, ("marlow", AT, "GET /"): (3, 3, 3)}
    assert "done" == stated(scene.store)[0].state
    write_back(scene)
    scene.store.command(f"INSERT INTO settled_minutes (caller, minute) VALUES ('{NAME}', '2026-06-01 09:59:00')")
    scene.settle("2026-06-01T12:00", settler)
    assert scene.totals() == {**since, ("marlow", AT, "GET /"): (3, 3, 3)}, "an hour later it has looked again"


def test_removal_that_the_engine_cannot_make_ends_no_settler_and_hides_no_progress(
    scene: SettlingScene, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody's change that fails for ever holds up all later ones of its table: bills must go on all the same."""
    settler = scene.settle(LATER, scene.settler(made=passes()))
    erase(scene)
    write_back(scene)
    scene.flush(*scene.decisions(2, "2026-06-02T11:05", caller="marlow"), stored_at="2026-06-02T11:05:01")
    with pytest.raises(StoreRefused):
        scene.store.command("ALTER TABLE settled_minutes DELETE WHERE toUInt64(caller) = 5")
    for at, one in (("11:10", settler), ("11:10:01", settler), ("11:11", scene.settler(made=passes()))):
        settler = scene.settle(f"2026-06-02T{at}", one)
        assert scene.rows("SELECT DISTINCT caller FROM erasing") == [(NAME,)], "it is tried again"
    assert scene.totals()["marlow", "2026-06-02T11:05", "GET /"] == (2, 2, 2)
    assert scene.rows("SELECT max(next_offset) FROM recorded") == scene.rows(
        "SELECT argMax(version, stored_at) FROM settled_progress"
    )
    told = [one for one in caplog.messages if "rows had come back and could not be deleted" in one]
    assert 2 == len(told), "once by each settler"
    assert "marlow" not in caplog.text
    asked = "SELECT count() FROM system.mutations WHERE database = currentDatabase() AND NOT is_done"
    assert [(2,)] == scene.rows(asked), "theirs and ours, however many rounds"

    scene.store.command("KILL MUTATION WHERE database = currentDatabase() AND command LIKE '%toUInt64(caller) = 5%'")
    for second in range(20, 60, 10):
        scene.settle(f"2026-06-02T11:11:{second}", settler)
        if not places.counted(scene.store, NAME):
            break
    assert {} == places.counted(scene.store, NAME)
    assert [] == scene.rows("SELECT * FROM erasing")


@pytest.mark.parametrize("dropped", ["for its age", "by hand"])
def test_what_a_caller_did_since_stays_when_its_facts_are_gone(scene: SettlingScene, dropped: str) -> None:
    """Totals outlive facts by years: that nothing is on record since must not be read as nothing done since."""
    begun_us = utc_us(f"{AT}:30")
    erasure = Erasure(7, begun_us, SALT, who_hash(SALT, NAME))
    erasing._state(scene.store, Stated(erasure, "begun", "desk", "request", begun_us, {}), "begun", {})
    scene.flush(*scene.decisions(6, "2026-06-01T12:01:10", caller=NAME), stored_at="2026-06-01T12:01:11")
    settler = scene.settle("2026-06-01T12:30", scene.settler(made=passes()))
    erase(scene)
    scene.settle(LATER, settler)
    since = {(NAME, "2026-06-01T12:01", "GET /"): (6, 6, 6), ("marlow", AT, "GET /"): (3, 3, 3)}
    assert since == scene.totals()
    scene.store.command("ALTER TABLE decisions DELETE WHERE 1")
    if dropped == "by hand":
        scene.store.command("INSERT INTO retention_drops VALUES ('2026-06-01', now64(6))")
    else:
        scene.store.command("INSERT INTO retention VALUES (now64(6), 10, 10, 10000, 10)")
    days = scene.totals(table="settled_days", unit="day")
    before = places.counted(scene.store, NAME)
    note(scene.store, [(erasure, NAME)])
    scene.settle("2026-07-20T12:00", scene.settler(made=passes()))
    assert (since, before) == (scene.totals(), places.counted(scene.store, NAME))
    scene.store.command(f"INSERT INTO settled_minutes (caller, minute) VALUES ('{NAME}', '2026-06-01 09:59:00')")
    scene.settle("2026-07-20T12:10", scene.settler(made=passes()))
    assert since == scene.totals(), "what came back of the past went alone"
    assert days == scene.totals(table="settled_days", unit="day"), "nobody could count it again"


def test_live_totals_that_a_slow_worker_writes_after_an_erasure_of_now_are_taken_out(scene: SettlingScene) -> None:
    """The minute, the quarter and the day in which an erasure ends were never looked through again."""
    one = erase(scene)
    assert one is not None
    minute = one.erasure.erased_before_us // 60_000_000 * 60
    scene.store.command(
        "INSERT INTO live (kind, caller, minute, offered, version) "
        f"VALUES ('usage', '{NAME}', toDateTime({minute}, 'UTC'), 5, 9)"
    )
    scene.settle(LATER, scene.settler(made=passes()))
    assert {} == places.counted(scene.store, NAME)
