"""The words of ``tallygate retention``: a wrong month is a wrong call."""

from __future__ import annotations

import pytest

from aggregator.retention import command


@pytest.mark.parametrize("month", ["0000-01", "1969-12", "2149-01", "9999-12", "2026-13"])
def test_month_that_no_calendar_or_database_has_is_a_wrong_call(month: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A script reads the exit code: 1 would say that the month is not over."""
    with pytest.raises(SystemExit) as ended:
        command.main(["drop", "--month", month])
    assert 2 == ended.value.code
    assert f"'{month}' is not a month" in capsys.readouterr().err
