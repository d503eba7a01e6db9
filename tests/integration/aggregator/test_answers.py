"""Commands on a real database whose standard output takes nothing: none of them gives a verdict."""

from __future__ import annotations

import sys

import pytest

from aggregator.migrate import migrate
from tallygate import cli

SPAN = ("--from", "2026-01-01", "--to", "2026-01-02")
ACTIONS = [
    ("audit", "gaps"),
    ("audit", "verify"),
    ("audit", "reconcile"),
    ("audit", "recompute", "--caller", "acct-1", *SPAN),
    ("audit", "fairness", *SPAN),
    ("audit", "export", "--caller", "acct-1", "--out", "-"),
    ("retention", "show"),
    ("dead-letters", "list"),
]


def test_full_disk_under_the_answer_is_no_verdict(
    database_dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """1 would be an alarm, and 2 the caller's own fault."""
    migrate(database_dsn)
    monkeypatch.setenv("TALLYGATE_CLICKHOUSE", database_dsn)
    for words in ACTIONS:
        with open("/dev/full", "w") as full, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", full)
            assert 3 == cli.main(words), words
        told = f"tallygate {words[0]}: the answer could not be written to standard output: No space left on device"
        assert told in capsys.readouterr().err.splitlines(), words
