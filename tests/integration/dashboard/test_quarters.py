"""A page made from quarters of an hour says what it would say if every minute were read, whatever comes late."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from zoneinfo import ZoneInfo

import pytest

from aggregator.config import parse_dsn
from aggregator.settler.passes.fairness import Fairness
from aggregator.settler.passes.minutes import MinutesPass
from aggregator.settler.passes.totals import Totals
from dashboard import reader
from dashboard.rows import CallerRecord
from dashboard.spans import SPANS, cut
from dashboard.store import Limits, Record
from dashboard.views import Frame, caller_view
from enforcer.types import Reason
from tests.settling import LOG_ID, SettlingScene, utc_us

#: `acme` is replayed, `other` has no terms and is not, `divided` is refused by a further limit too.
CALLERS = ("acme", "other", "divided")
_LIVE = """
INSERT INTO live (
    kind, caller, minute, scope, log_partition, version, offered, admitted, refused_spent, refused_ceiling,
    cost_offered, cost_admitted
)
SELECT 'usage', caller, toStartOfMinute(at), scope, log_partition, {version:UInt64}, count(), countIf(allowed),
    countIf(reason = 'spent'), countIf(reason = 'ceiling'), sum(cost_tokens), sumIf(cost_tokens, allowed)
FROM decisions FINAL GROUP BY caller, toStartOfMinute(at), scope, log_partition
"""
_LIVE_CALLERS = """
INSERT INTO live (kind, caller, minute, log_partition, version, copies, plan, rate_per_s, burst, k_counted)
SELECT 'caller', caller, toStartOfMinute(at) AS minute, log_partition, {version:UInt64},
    groupUniqArray(toString(copy_id)), if(minute < '2026-11-30 10:20:00', 'standard', 'large'), 5, 30,
    uniqExact(copy_id)
FROM decisions FINAL GROUP BY caller, minute, log_partition
"""


@pytest.fixture
def scene(database_dsn: str) -> Iterator[SettlingScene]:
    made = SettlingScene(database_dsn)
    yield made
    made.close()


def some(scene: SettlingScene, chance: random.Random, minutes: list[str], stored_at: str) -> None:
    """A flush of decisions of some minutes, of each caller, on a copy and in a partition of their own."""
    rows = []
    for minute in minutes:
        for caller in CALLERS:
            for _ in range(chance.randint(1, 3)):
                refused = chance.random() < 0.3
                rows += scene.decisions(
                    chance.randint(1, 5),
                    f"{minute}:{chance.randint(0, 58):02d}",
                    caller=caller,
                    scope=chance.choice(["GET /", "POST /"]),
                    copy_id=f"gw-{chance.randint(1, 3)}",
                    reason=Reason.SPENT if refused else Reason.NONE,
                )
    scene.flush(*rows, partition=chance.randint(0, 1), stored_at=stored_at)


def bring_live(scene: SettlingScene) -> None:
    """The live totals as the worker has them once it has read everything."""
    ends = scene.rows("SELECT log_partition, max(next_offset) FROM recorded GROUP BY log_partition")
    version = sum(int(end) for _, end in ends)
    for sql in (_LIVE, _LIVE_CALLERS):
        scene.store.command(sql, {"version": version})
    for partition, end in ends:
        scene.store.command(
            "INSERT INTO live (kind, scope, log_partition, version) "
            f"VALUES ('progress', '{LOG_ID}', {partition}, {int(end)})"
        )


def framed(at: str, span: str) -> Frame:
    """What the viewer chose: days that begin at a quarter of an hour."""
    shown, zone, now_us = SPANS[span], ZoneInfo("Asia/Kathmandu"), utc_us(at)
    return Frame(shown, zone, now_us, tuple(cut(shown, now_s=now_us // 1_000_000, zone=zone)))


def page(scene: SettlingScene, caller: str, at: str, span: str = "24h") -> CallerRecord:
    """What a page is made from."""
    frame = framed(at, span)
    return reader.read_caller(Record(parse_dsn(scene.dsn), Limits(seconds=20, page_s=30)), caller, frame, refusals=25)


def same_both_ways(scene: SettlingScene, at: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, CallerRecord]:
    """The pages of all callers, after making sure that they are what they are if every minute is read."""
    found = {}
    for caller in (*CALLERS, "nobody"):
        for span in ("24h", "30d"):
            quick = page(scene, caller, at, span)
            with monkeypatch.context() as patch:
                patch.setattr(reader, "_MOST_QUARTERS", -1)
                slow = page(scene, caller, at, span)
            frame = framed(at, span)
            assert caller_view(caller, frame, slow) == caller_view(caller, frame, quick), (caller, span)
            found[caller] = quick
    return found


def rolled(scene: SettlingScene, since: str = "2026-11-30 10:00:00") -> list[str]:
    """The quarters that are rolled up."""
    sql = (
        "SELECT formatDateTime(quarter, '%H:%i') FROM rolled_quarters FINAL "
        "WHERE whole AND by_day AND quarter >= {since:String} ORDER BY quarter"
    )
    return [str(name) for (name,) in scene.rows(sql, since=since)]


def test_pages_of_quarters_say_what_pages_of_minutes_say(scene: SettlingScene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unsettled rest, late blocks before and after they are settled, a wrong live total, an erasure."""
    chance = random.Random(5)
    scene.store.command(
        "INSERT INTO terms (caller, limit, policy_version, plan, rate_per_s, burst) "
        "VALUES ('acme', 'rate', 1, 'standard', 5, 30), ('divided', 'rate', 1, 'standard', 5, 30)"
    )
    some(scene, chance, [f"2026-11-30T10:{minute:02d}" for minute in range(0, 50, 3)], "2026-11-30T10:50")
    scene.store.command(
        "INSERT INTO decisions (caller, at, copy_id, epoch, seq, scope, limit, plan, allowed, reason, cost_tokens, "
        "policy_version, log_partition) "
        "SELECT 'divided', toDateTime64('2026-11-30 10:03:20', 6, 'UTC') + number / 1000, "
        "'gw-9', 1, number, 'GET /', 'site', 'standard', false, 'ceiling', 1, 1, 0 FROM numbers(40)"
    )
    bring_live(scene)
    settler = scene.settle("2026-11-30T10:51", scene.settler(made=[MinutesPass([Totals()], Fairness())]))
    assert ["10:00", "10:15", "10:30"] == rolled(scene), "what is over, and not what still fills"
    shown = same_both_ways(scene, "2026-11-30T10:51", monkeypatch)
    assert shown["divided"].busiest is not None
    assert shown["divided"].busiest.requests >= 40, "of both limits together"
    assert shown["acme"].steps[0].plan != shown["acme"].steps[-1].plan

    some(scene, chance, ["2026-11-30T10:07", "2026-11-30T10:52"], "2026-11-30T10:53")
    bring_live(scene)
    same_both_ways(scene, "2026-11-30T10:53", monkeypatch)
    before = page(scene, "acme", "2026-11-30T10:53")
    scene.settle("2026-11-30T10:53:20", settler)
    after = page(scene, "acme", "2026-11-30T10:53")
    assert before == replace(after, settled=before.settled)
    assert before.settled.from_us != after.settled.from_us
    same_both_ways(scene, "2026-11-30T10:53", monkeypatch)
    assert ["10:00", "10:15", "10:30"] == rolled(scene)

    some(scene, chance, ["2026-11-30T10:20"], "2026-11-30T10:54")
    scene.settle("2026-11-30T10:54:10", settler)
    assert ["10:00", "10:30"] == rolled(scene), "the live totals have not come so far"
    same_both_ways(scene, "2026-11-30T10:54", monkeypatch)
    bring_live(scene)
    scene.settle("2026-11-30T10:55", settler)
    assert ["10:00", "10:15", "10:30"] == rolled(scene)
    same_both_ways(scene, "2026-11-30T10:55", monkeypatch)

    scene.store.command(
        "INSERT INTO live SELECT * REPLACE (version + 1 AS version, offered + 7 AS offered) FROM live FINAL "
        "WHERE kind = 'usage' AND caller = 'acme' AND minute = '2026-11-30 10:48:00'"
    )
    scene.store.command(
        "INSERT INTO disagreements (kind, minute, caller, found_at) "
        "VALUES ('live', '2026-11-30 10:48:00', 'acme', '2026-11-30 10:56:00')"
    )
    told = same_both_ways(scene, "2026-11-30T10:56", monkeypatch)["acme"]
    assert scene.rows("SELECT count() FROM decisions FINAL WHERE caller = 'acme'") == [
        (sum(counts.offered for counts in told.series.values()),)
    ], "where the live total is wrong the settled one stands in"

    for table in ("decisions", "live", "settled_minutes", "fairness", "quarters", "quarter_days"):
        scene.store.command(f"DELETE FROM {table} WHERE caller = 'divided'")
    gone = same_both_ways(scene, "2026-11-30T10:57", monkeypatch)["divided"]
    assert not gone.series
    assert not gone.steps
    assert gone.busiest is None


def test_what_is_read_late_of_an_older_log_is_shown(scene: SettlingScene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new database said of all quarters that they were rolled up, before anything of a log that exists was read."""
    settler = scene.settle("2026-11-30T10:51")
    some(scene, random.Random(5), ["2026-11-30T10:03", "2026-11-30T10:20"], "2026-11-30T10:52")
    scene.settle("2026-11-30T10:52:30", settler)
    bring_live(scene)
    for at in ("2026-11-30T10:53", "2026-11-30T12:05"):
        scene.settle(at, settler)
    assert same_both_ways(scene, "2026-11-30T12:06", monkeypatch)["acme"].series


def test_a_recorder_that_is_behind_takes_nothing_off_the_pages(scene: SettlingScene) -> None:
    """The live totals have what is not recorded yet: a quarter of what is settled alone would show less than before."""
    some(scene, random.Random(5), ["2026-11-30T10:03"], "2026-11-30T10:04")
    bring_live(scene)
    for kind, caller in (("usage", "acme"), ("fleet", "")):
        scene.store.command(
            "INSERT INTO live (kind, caller, minute, scope, version, offered, admitted) "
            f"VALUES ('{kind}', '{caller}', '2026-11-30 10:10:00', 'GET /', 100, 100, 100)"
        )
    scene.store.command(
        f"INSERT INTO live (kind, scope, log_partition, version) VALUES ('progress', '{LOG_ID}', 0, 100)"
    )
    settler = scene.settle("2026-11-30T10:14:50")
    before = page(scene, "acme", "2026-11-30T10:14:50")
    scene.settle("2026-11-30T10:15:10", settler)
    assert before.series == page(scene, "acme", "2026-11-30T10:15:10").series
    assert [] == rolled(scene)


def test_what_was_rolled_up_before_days_were_is_rolled_up_once_more(
    scene: SettlingScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database of an older version says that quarters are rolled up, and has no day of them: pages showed nothing."""
    some(scene, random.Random(5), [f"2026-11-30T10:{minute:02d}" for minute in range(0, 40, 3)], "2026-11-30T10:40")
    bring_live(scene)
    settler = scene.settle("2026-11-30T10:46")
    before = same_both_ways(scene, "2026-11-30T10:46", monkeypatch)
    scene.store.command("TRUNCATE TABLE quarter_days")
    scene.store.command(
        "INSERT INTO rolled_quarters (quarter, version, stored_at, whole) "
        "SELECT quarter, version, stored_at, whole FROM rolled_quarters FINAL"
    )
    assert [] == rolled(scene)
    assert before["acme"].endpoints == same_both_ways(scene, "2026-11-30T10:46", monkeypatch)["acme"].endpoints
    scene.settle("2026-11-30T10:47", settler)
    assert ["10:00", "10:15", "10:30"] == rolled(scene)
    assert before["acme"].endpoints == same_both_ways(scene, "2026-11-30T10:46", monkeypatch)["acme"].endpoints
