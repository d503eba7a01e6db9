"""What the settler says of itself before it has asked anybody."""

from __future__ import annotations

import logging

import pytest

from aggregator.core.fairness.replay import IN_PYTHON
from aggregator.settler.process import say_replay


def test_settler_warns_once_where_there_was_no_compiler(caplog: pytest.LogCaptureFixture) -> None:
    """The reason and the consequence in plain words, and no alarm where all is well."""
    log = logging.getLogger("test-of-the-settler")
    with caplog.at_level(logging.INFO, log.name):
        say_replay(log, None)
        say_replay(log, IN_PYTHON)
    (warned,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "without a C compiler" in warned
    assert "settled totals will fall behind" in warned
