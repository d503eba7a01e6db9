"""Pages of a day and more after a replay was exchanged: what the rebuilt totals say, at once and rolled up again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from aggregator.config import parse_dsn
from aggregator.replay.shadow import empty_shadow, find_shadow
from aggregator.replay.swap import swap
from aggregator.settler.quarters import QuarterTotals, quarters_of
from tests.integration.dashboard.test_quarters import bring_live, page, rolled
from tests.settling import SettlingScene, utc_us

NOW, LATER = "2026-11-30T10:51", "2026-11-30T10:53"
#: A quarter that is rolled up anew.
AGAIN = quarters_of([utc_us("2026-11-30T10:20") // 60_000_000])[0]


@pytest.fixture
def scene(database_dsn: str) -> Iterator[SettlingScene]:
    """Half an hour of a caller, settled and rolled up."""
    made = SettlingScene(database_dsn)
    for minute in range(0, 30, 5):
        made.flush(*made.decisions(2, f"2026-11-30T10:{minute:02d}"), stored_at=f"2026-11-30T10:{minute + 1:02d}")
    bring_live(made)
    made.settle(NOW)
    yield made
    made.close()


@pytest.fixture
def shadow(scene: SettlingScene) -> Iterator[str]:
    """A shadow whose settled totals are right."""
    dsn = parse_dsn(scene.dsn)
    name = f"{dsn.database}_shadow"
    find_shadow(scene.store, dsn, name)
    empty_shadow(scene.store, dsn, name)
    for table in ("settled_minutes", "settled_fleet", "settled_progress"):
        scene.store.command(f"SYSTEM STOP TTL MERGES {name}.{table}")
        scene.store.command(f"INSERT INTO {name}.{table} SELECT * FROM {table}")
    yield name
    scene.store.command(f"DROP DATABASE IF EXISTS {name} SYNC")


def offered(scene: SettlingScene, caller: str, span: str = "24h") -> int:
    """What a page comes to: a quarter that is not rolled up stands by itself in it, whatever the span."""
    return sum(counts.offered for counts in page(scene, caller, NOW, span).series.values())


@pytest.mark.parametrize("span", ["24h", "30d"])
def test_pages_after_a_replay_show_nothing_that_was_rolled_up_of_the_former_totals(
    scene: SettlingScene, shadow: str, span: str
) -> None:
    """The replay was made because they were wrong; and a page that is empty until the next day helps nobody."""
    right = page(scene, "acme", NOW, span)
    assert ["10:00", "10:15", "10:30"] == rolled(scene)
    assert 12 == offered(scene, "acme", span)
    scene.store.command(
        "INSERT INTO quarters (kind, caller, quarter, scope, version, offered, admitted) "
        "SELECT 'usage', arrayJoin(['acme', 'phantom']), toDateTime('2026-11-30 10:00:00', 'UTC'), "
        "arrayJoin(['GET /', 'POST /former']), 1000, 500, 500"
    )
    scene.store.command(
        "INSERT INTO quarter_days (kind, caller, day, part, version, at, names, numbers) "
        "SELECT 'total', arrayJoin(['acme', 'phantom']), toDate('2026-11-30'), 1, 1000, [40], "
        "['offered', 'admitted'], [500, 500]"
    )
    nobody = page(scene, "nobody", NOW, span)
    assert 500 <= offered(scene, "phantom", span)

    swap(scene.store, parse_dsn(scene.dsn).database, shadow)
    assert [12, 0] == [offered(scene, who, span) for who in ("acme", "phantom")]
    assert [] == rolled(scene), "by reading minutes"
    scene.settle(NOW)
    assert ["10:00", "10:15", "10:30"] == rolled(scene)
    assert right.series == page(scene, "acme", NOW, span).series
    assert nobody.series == page(scene, "phantom", NOW, span).series
    for database in ("", f"{shadow}."):
        for table in ("quarters", "quarter_days"):
            assert [(0,)] == scene.rows(f"SELECT count() FROM {database}{table} WHERE version = 1000")


@pytest.mark.parametrize("step", ["_roll", "_mark"])
def test_settler_that_runs_while_a_replay_is_exchanged_marks_nothing_that_it_rolled_up_of_the_former(
    scene: SettlingScene, shadow: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quarter that counts as rolled up and is empty, or has one caller of two, stays so on pages for ever."""
    real = getattr(QuarterTotals, step)
    exchanged: list[str] = []

    def meanwhile(totals: QuarterTotals, store: Any, what: Any, *words: Any, **named: Any) -> None:
        if AGAIN in getattr(what, "quarters", what) and named.get("whole", True) and not exchanged:
            for table in ("settled_minutes", "settled_fleet"):
                scene.store.command(f"INSERT INTO {shadow}.{table} SELECT * FROM {table}")
            exchanged.extend(swap(scene.store, parse_dsn(scene.dsn).database, shadow))
        real(totals, store, what, *words, **named)

    monkeypatch.setattr(QuarterTotals, step, meanwhile)
    right = page(scene, "acme", NOW, "24h")
    scene.flush(*scene.decisions(3, "2026-11-30T10:20", caller="late"), stored_at="2026-11-30T10:51")
    bring_live(scene)
    settler = scene.settle("2026-11-30T10:52")
    assert exchanged
    assert [] == rolled(scene)

    scene.settle(LATER, settler)
    assert ["10:00", "10:15", "10:30"] == rolled(scene)
    assert right.series == page(scene, "acme", NOW, "24h").series
    assert 3 == offered(scene, "late")
