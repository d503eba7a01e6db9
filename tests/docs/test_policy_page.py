"""The page on the policy file and the page on failure modes say what the code does."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from enforcer.limiting.limiter import Limiter
from enforcer.policies.model import Policy
from enforcer.types import Source
from tallygate import cli
from tests.docs.snippets import snippets
from tests.unit.enforcer.harness import Fleet

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_policy_on_the_page_is_valid_and_explained_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is what newcomers copy."""
    page = DOCS / "reference" / "policy.md"
    (text,), (command,), (said,) = (snippets(page, kind) for kind in ("yaml", "sh", "text"))
    (tmp_path / "policy.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    program, *words = shlex.split(command)
    assert "tallygate" == program
    assert 0 == cli.main(words)
    assert said == capsys.readouterr().out


@pytest.mark.parametrize(("quota", "left"), [(200, 140), (80, 20)])
def test_what_was_used_of_a_quota_stays_used(quota: int, left: int) -> None:
    """A larger plan is no gift of what was already spent, a smaller one no pardon."""

    def policy(version: int, amount: int) -> Policy:
        return Policy.model_validate(
            {
                "version": version,
                "plans": {"p": {"rate_per_s": 1000, "burst": 1000, "limits": {"day": {"quota": amount, "per": "day"}}}},
                "default_plan": "p",
            }
        )

    fleet = Fleet(policy(1, 100))
    assert 60 == _admitted(fleet.limiter, 60)
    fleet.advance(8)
    fleet.limiter.apply(policy(2, quota))
    assert left == _admitted(fleet.limiter, 400)


def _admitted(limiter: Limiter, times: int, scope: str = "default") -> int:
    return sum(limiter.check("acme", scope).allowed for _ in range(times))


def _rows() -> list[list[str]]:
    page = (DOCS / "failure-modes.md").read_text()
    rows = [line.split("|")[1:-1] for line in page.splitlines() if line.startswith("| `")]
    return [[cell.strip().strip("`") for cell in row] for row in rows][1:]


@pytest.mark.parametrize(("mode", "plan", "admitted", "reason", "_"), _rows())
def test_each_row_of_the_failure_table_is_what_a_copy_does(
    mode: str, plan: str, admitted: str, reason: str, _: str
) -> None:
    """Who reads it decides by it how a route fails."""
    plans: dict[str, Any] = {"small": {"rate_per_s": 5, "burst": 10}, "large": {"rate_per_s": 1000, "burst": 2000}}
    policy = Policy.model_validate(
        {
            "version": 1,
            "plans": plans,
            "default_plan": plan,
            "scopes": {"tried": {"fail_mode": mode}},
            "fleet": {"copies": 4, "ceiling_per_s": 2000},
        }
    )
    fleet = Fleet(policy)
    fleet.owner.away = "tested"
    assert int(admitted) == _admitted(fleet.limiter, 2_500, "tried")
    assert {Source.DEGRADED} == {verdict.source for verdict in fleet.sink.verdicts}
    refused = {verdict.reason.name.lower() for verdict in fleet.sink.verdicts if not verdict.allowed}
    assert {reason} == refused
    assert 8 == len(_rows())
