"""``tallygate audit`` about totals: as they were reported, what changed since and why, counted anew, and billed."""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from aggregator.audit import command
from enforcer.types import Reason
from tests.settling import SettlingScene


@pytest.fixture
def scene(database_dsn: str) -> Iterator[SettlingScene]:
    made = SettlingScene(database_dsn)
    yield made
    made.close()


class Audit:
    """Asks like the command does, and reads what it prints."""

    def __init__(self, scene: SettlingScene, capsys: pytest.CaptureFixture[str]) -> None:
        self._scene = scene
        self._capsys = capsys

    def text(self, action: str, *words: str, caller: str = "acme") -> tuple[int, str]:
        """Exit code and text."""
        module: Any = importlib.import_module(command.ACTIONS[action])
        parser = argparse.ArgumentParser()
        module.add_arguments(parser)
        whose = ["--caller", caller] if caller else []
        code = module.run(parser.parse_args([*whose, *words]), self._scene.store)
        return code, self._capsys.readouterr().out

    def json(self, action: str, *words: str) -> dict[str, Any]:
        """What programs are told."""
        return dict(json.loads(self.text(action, *words, "--json")[1]))


@pytest.fixture
def audit(scene: SettlingScene, capsys: pytest.CaptureFixture[str]) -> Audit:
    return Audit(scene, capsys)


_HOUR = ("--from", "2026-11-30T10:00", "--to", "2026-11-30T11:00")


def test_late_decisions_are_a_revision_and_what_was_reported_stays_known(scene: SettlingScene, audit: Audit) -> None:
    """R19: 100 at 11:05; twenty come at 13:00: 120 now, as of 11:05 still 100, and +20 is listed with why."""
    scene.flush(*scene.decisions(60, "2026-11-30T10:17"), stored_at="2026-11-30T10:17:01")
    scene.flush(*scene.decisions(40, "2026-11-30T10:40", scope="POST /"), stored_at="2026-11-30T10:40:01")
    settler = scene.settle("2026-11-30T11:05")
    late = [
        *scene.decisions(15, "2026-11-30T10:17:30", copy_id="gw-2", reason=Reason.SPENT),
        *scene.decisions(5, "2026-11-30T10:50", copy_id="gw-2"),
    ]
    offset = scene.flush(*late, partition=2, stored_at="2026-11-30T13:00:00")
    scene.settle("2026-11-30T13:00:40", settler)
    assert audit.json("as-of", *_HOUR, "--at", "2026-11-30T11:05")["offered"] == 100
    assert audit.json("as-of", *_HOUR, "--at", "2026-11-30T11:04")["offered"] == 0
    now = audit.json("as-of", *_HOUR, "--at", "2026-12-01")
    assert (now["offered"], now["admitted"], now["refused"]) == (120, 105, 15)
    scopes = audit.json("as-of", *_HOUR, "--at", "2026-11-30T12:00", "--by", "scope")["findings"]
    assert [(one["scope"], one["offered"]) for one in scopes] == [("GET /", 60), ("POST /", 40)]

    told = audit.json("revisions", *_HOUR)["findings"]
    assert [(one["of"], one["at"], one["offered"], one["admitted"]) for one in told] == [
        ("2026-11-30T10:00:00.000000Z", "2026-11-30T11:05:00.000000Z", 100, 100),
        ("2026-11-30T10:00:00.000000Z", "2026-11-30T13:00:40.000000Z", 20, 5),
    ]
    assert [(one["copy_id"], one["partition"], one["offset"], one["decisions"]) for one in told[1]["blocks"]] == [
        ("gw-2", 2, offset, 15),
        ("gw-2", 2, offset, 5),
    ]
    code, text = audit.text("revisions", *_HOUR)
    assert code == 0
    assert "+20 offered" in text
    assert f"gw-2 (epoch 1) tallygate.decisions[2]@{offset}, stored 2026-11-30T13:00:00.000000Z" in text


def test_where_there_is_nothing_to_judge_nothing_agrees(scene: SettlingScene, audit: Audit) -> None:
    """A name that is mistyped, a settler that never ran, a record that was never written: all would be in order."""
    at = ("--at", "2026-12-02")
    for action in ("gaps", "verify"):
        code, text = audit.text(action, caller="")
        assert (code, text.partition(":")[0]) == (3, "cannot say"), action
    scene.flush(*scene.decisions(6, "2026-11-30T10:17", caller="other"), stored_at="2026-11-30T10:17:01")
    for action in ("reconcile", "ledger", "recompute", "fairness"):
        code, text = audit.text(action, *_HOUR)
        assert (code, text.partition(":")[0]) == (3, "cannot say"), action
        assert audit.json(action, *_HOUR)["agrees"] is None
    assert "1 minutes of all callers are not settled yet" in audit.text("fairness", *_HOUR)[1]
    scene.settle("2026-12-01T00:10")
    for action, words in (("as-of", (*_HOUR, *at)), ("bill", ("--period", "2026-11")), ("revisions", _HOUR)):
        code, text = audit.text(action, *words)
        assert (code, "cannot say: " in text) == (3, True), action
        assert audit.text(action, *words, caller="other")[0] == 0
    code, text = audit.text("bill", "--period", "2026-10", caller="other")
    assert (code, "0 offered" in text) == (0, True), "who asked for nothing owes nothing"


def test_minutes_that_were_settled_on_time_are_no_revisions(scene: SettlingScene, audit: Audit) -> None:
    """A list that names every minute names nothing."""
    scene.flush(*scene.decisions(6, "2026-11-30T10:17"), stored_at="2026-11-30T10:17:01")
    scene.settle("2026-11-30T10:18:31")
    assert audit.json("revisions", *_HOUR)["findings"] == []


def test_recomputing_repeats_byte_for_byte_and_finds_what_was_settled_otherwise(
    scene: SettlingScene, audit: Audit
) -> None:
    """In a dispute both sides must be able to count again, and to see a total that somebody changed."""
    scene.flush(*scene.decisions(6, "2026-11-30T10:17", cost=2), stored_at="2026-11-30T10:17:01")
    scene.flush(*scene.decisions(4, "2026-11-30T10:59"), stored_at="2026-11-30T10:59:10")
    scene.settle("2026-11-30T10:59:40")
    code, text = audit.text("recompute", *_HOUR)
    assert code == 0
    assert text.startswith("agrees: acme")
    assert "10 offered" in text
    assert "1 minutes are not settled yet" in text
    assert audit.text("recompute", *_HOUR) == (code, text)
    scene.flush(*scene.decisions(1, "2026-11-30T10:58"), stored_at="2026-11-30T10:59:59")
    assert audit.json("recompute", *_HOUR)["minutes_not_settled"] == 2
    scene.settle("2026-11-30T11:05")
    scene.store.command(
        "INSERT INTO settled_minutes (caller, minute, scope, version, stored_at, offered, admitted) "
        "VALUES ('acme', '2026-11-30 10:17:00', 'GET /', 99, '2026-11-30 12:00:00', 5, 5)"
    )
    told = audit.json("recompute", *_HOUR)
    assert (told["agrees"], told["differing"], told["minutes_not_settled"]) == (False, 1, 0)
    assert told["findings"][0] == {
        "minute": "2026-11-30T10:17:00.000000Z", "scope": "GET /",
        "raw_offered": 6, "raw_admitted": 6, "settled_offered": 5, "settled_admitted": 5,
    }  # fmt: skip
    assert audit.text("recompute", *_HOUR)[0] == 1


def test_a_bill_is_of_the_zones_month_and_lists_its_revisions(scene: SettlingScene, audit: Audit) -> None:
    """October begins in London at 23:00 UTC of 30 September and ends at midnight of the 31st: clocks change in it."""
    for at, number in (
        ("2026-09-30T22:59", 1),
        ("2026-09-30T23:00", 2),
        ("2026-10-01T00:00", 4),
        ("2026-10-15T12:00", 8),
        ("2026-10-31T23:59", 16),
        ("2026-11-01T00:00", 32),
    ):
        scene.flush(*scene.decisions(number, at, cost=3), stored_at=at)
    scene.settle("2026-11-02T00:10", scene.settler(settle_days="60", keep_admitted_days="60"))
    assert audit.json("bill", "--period", "2026-10", "--zone", "Europe/London")["offered"] == 30
    assert audit.json("bill", "--period", "2026-10")["offered"] == 28
    scene.flush(*scene.decisions(64, "2026-10-15T12:00:30", cost=3), stored_at="2026-11-03T12:00")
    scene.settle("2026-11-03T12:00:10", scene.settler(settle_days="60", keep_admitted_days="60"))
    told = audit.json("bill", "--period", "2026-10", "--zone", "Europe/London")
    assert (told["offered"], told["cost_admitted"]) == (94, 282)
    revised = [one for one in told["revisions"] if one["at"] == "2026-11-03T12:00:10.000000Z"]
    assert [(one["of"], one["offered"], one["cost_admitted"]) for one in revised] == [
        ("2026-10-15T00:00:00.000000Z", 64, 192)
    ]


def test_a_bill_outlives_the_minutes(scene: SettlingScene, audit: Audit) -> None:
    """Minutes are kept for 13 months, a dispute may come later; and no day is made anew of minutes that are gone."""
    scene.flush(*scene.decisions(5, "2026-10-15T12:00"), stored_at="2026-10-15T12:00")
    settler = scene.settle("2026-10-16T00:10")
    scene.store.command("TRUNCATE TABLE settled_minutes")
    scene.flush(*scene.decisions(1, "2026-10-15T12:00"), stored_at="2026-10-16T01:00")
    scene.store.command("TRUNCATE TABLE decisions")
    scene.settle("2026-10-16T01:00:10", settler)
    assert audit.json("bill", "--period", "2026-10")["offered"] == 5


def test_months_from_before_there_were_totals_are_billed_after_a_start_with_long_settings(
    scene: SettlingScene, audit: Audit
) -> None:
    """The way that docs/operations/retention.md gives for upgrades; with settings as they are, they are let go."""
    scene.flush(*scene.decisions(7, "2026-01-15T12:00"), stored_at="2026-11-30T10:00")
    scene.settle("2026-11-30T10:00:10", scene.settler(settle_days="400", keep_admitted_days="400"))
    scene.settle("2026-11-30T10:10", scene.settler())
    told = audit.json("bill", "--period", "2026-01")
    assert (told["offered"], told["minutes_not_settled"], told["minutes_too_late"]) == (7, 0, 0)


def test_a_bill_says_what_of_its_month_is_not_settled(scene: SettlingScene, audit: Audit) -> None:
    """Sixty decisions on record and "0 offered", in the words of a month in which nothing happened, is no bill."""
    scene.limit()
    scene.flush(*scene.decisions(60, "2026-10-15T12:00"), stored_at="2026-10-15T12:00")
    at = ("--at", "2026-10-20T00:00", "--from", "2026-10-15", "--to", "2026-10-16")
    for action, words in (("bill", ("--period", "2026-10")), ("as-of", at)):
        assert "1 minutes of all callers are not settled yet" in audit.text(action, *words)[1].splitlines()[0]
        told = audit.json(action, *words)
        assert (told["offered"], told["minutes_not_settled"], told["minutes_too_late"]) == (0, 1, 0)
    assert audit.json("bill", "--period", "2026-09")["minutes_not_settled"] == 0
    settler = scene.settle("2026-10-16T00:10")
    summary = audit.text("bill", "--period", "2026-10")[1].splitlines()[0]
    assert "60 offered" in summary
    assert "not settled" not in summary
    scene.flush(*scene.decisions(1, "2026-10-15T12:00:30"), stored_at="2026-11-20T12:00")
    scene.settle("2026-11-20T12:00:10", settler)
    assert "too late to be counted in 1 minutes" in audit.text("bill", "--period", "2026-10")[1].splitlines()[0]
    assert audit.json("bill", "--period", "2026-10")["minutes_too_late"] == 1
    assert audit.json("as-of", *at)["minutes_too_late"] == 0, "nobody could have said so then"


@pytest.mark.parametrize(
    "words", [("--period", "2026-13"), ("--period", "2026-10", "--zone", "Mars/Olympus"), ("--period", "october")]
)
def test_a_bill_of_no_month_or_zone_is_refused(audit: Audit, words: tuple[str, ...]) -> None:
    """A wrong word must not become somebody's bill."""
    with pytest.raises(SystemExit) as ended:
        audit.text("bill", *words)
    assert ended.value.code == 2


def test_spans_within_a_minute_are_refused(audit: Audit) -> None:
    """Totals are of minutes: half a one would be answered with a whole one."""
    with pytest.raises(SystemExit) as ended:
        audit.text("as-of", "--from", "2026-11-30T10:00:30Z", "--at", "2026-12-01")
    assert ended.value.code == 2
