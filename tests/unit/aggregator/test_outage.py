"""Outages are told once, and tries become rarer."""

from __future__ import annotations

import logging

import pytest

from aggregator.outage import Outage


def test_outage_is_told_once_at_its_start_and_once_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    """A line a try would hide everything else."""
    now = [10.0]
    outage = Outage("nothing is acknowledged", logging.getLogger("t"), now_s=lambda: now[0])
    with caplog.at_level(logging.INFO):
        outage.worked("it")
        for number in range(5):
            outage.failed(OSError(f"the disk is full: {number} bytes left"))
        now[0] = 13.5
        outage.worked("it works")
        outage.worked("it works")
    assert [
        "the disk is full: 0 bytes left; nothing is acknowledged",
        "it works again after 3.5 s; nothing was lost",
    ] == [record.message for record in caplog.records]


def test_outage_is_told_again_when_its_kind_changes(caplog: pytest.LogCaptureFixture) -> None:
    """Away and full ask for different help."""
    outage = Outage("waiting", logging.getLogger("t"))
    for said in ("does not answer: refused", "does not answer: timeout", "is full: x", "does not answer: refused"):
        outage.failed(OSError(said))
    assert 3 == len(caplog.records)


def test_outage_waits_longer_each_time_up_to_a_bound() -> None:
    """A database that comes back must not be met by a storm, and must be found soon."""
    outage = Outage("waiting", logging.getLogger("t"))
    delays = [outage.failed(OSError("x")) for _ in range(2_000)]
    assert [0.1, 0.2, 0.4] == delays[:3]
    assert 5.0 == max(delays)
    outage.worked("x")
    assert 0.1 == outage.failed(OSError("x"))
