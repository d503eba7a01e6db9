"""Starting: what is wrong is said before anything is served."""

from __future__ import annotations

import logging
import socket

import pytest

from dashboard import serve
from dashboard.config import DashboardConfig

SECRET = "a secret of the tests, long enough"


def test_a_taken_port_is_said_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    """The most frequent fault of a second start."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        assert 1 == serve.main({"TALLYGATE_SECRET": SECRET, "TALLYGATE_DASHBOARD": place})
    said = capsys.readouterr().err
    assert f"cannot listen on {place}" in said
    assert "TALLYGATE_DASHBOARD" in said


def test_a_missing_secret_is_not_served(capsys: pytest.CaptureFixture[str]) -> None:
    """A dashboard that signs with nothing would let anyone in."""
    assert 2 == serve.main({})
    assert "TALLYGATE_SECRET" in capsys.readouterr().err


def test_a_record_that_cannot_be_read_is_logged_and_no_reason_to_stop(caplog: pytest.LogCaptureFixture) -> None:
    """ClickHouse may come later: the pages say so themselves until then."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    config = DashboardConfig.from_env(
        {"TALLYGATE_SECRET": SECRET, "TALLYGATE_CLICKHOUSE": f"http://u:hidden-password@127.0.0.1:{port}/d"}
    )
    serve.report_record(config)
    assert "cannot be read yet" in caplog.text
    assert f"127.0.0.1:{port}" in caplog.text
    assert "hidden-password" not in caplog.text


def test_log_has_no_line_of_the_driver_for_each_time_that_nobody_answers(caplog: pytest.LogCaptureFixture) -> None:
    """The gate says the beginning and the end of an outage; a line a second between them would bury both."""
    caplog.set_level(logging.INFO, "clickhouse_connect")
    serve.set_up_log()
    driver = logging.getLogger("clickhouse_connect.driver._backend.http_sync")
    assert not driver.isEnabledFor(logging.WARNING)
    assert driver.isEnabledFor(logging.ERROR)
