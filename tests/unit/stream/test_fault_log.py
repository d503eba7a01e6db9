"""A fault is said once, with its number; a gateway's log is not the place to count them."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest

from enforcer.clock import ManualClock
from stream.config import StreamConfig
from stream.fault_log import FaultLog
from stream.memory import MemorySink
from tests.verdicts import IDENTITY, basis, grant, verdict, verdicts


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert all(record.exc_info is None for record in caplog.records)
    return [record.getMessage() for record in caplog.records]


def sink(**settings: Any) -> MemorySink:
    return MemorySink(StreamConfig(**settings), IDENTITY, clock=ManualClock())


def test_bad_decisions_are_one_line_per_kind(caplog: pytest.LogCaptureFixture) -> None:
    """A traceback for each half of each half of a block hid the one thing that matters: which field, which value."""
    taken = verdicts(1_000)
    for seq in (137, 138, 900):
        taken[seq] = verdict(seq, cost=2**40 + seq)
    taken[601] = msgspec.structs.replace(taken[601], at_ns=None)
    shipped = sink()
    for _ in range(2):
        for one in taken:
            shipped.capture(one)
        taken = [msgspec.structs.replace(one, seq=one.seq + 1_000) for one in taken]
        shipped.tick(everything=True)
    said = lines(caplog)
    assert 2 == len(said)
    assert any("3 decisions cannot be recorded: cost is 1099511627913; allowed: 0 to" in line for line in said)
    assert any("1 decisions cannot be recorded" in line for line in said)


def test_decision_that_fits_no_message_says_which_setting(caplog: pytest.LogCaptureFixture) -> None:
    """The operator can raise it."""
    shipped = sink(max_message_bytes=10_000)
    shipped.capture(verdict(0, on=basis("x" * 20_000)))
    shipped.tick(everything=True)
    assert ["TALLYGATE_MAX_MESSAGE_BYTES" in line for line in lines(caplog)] == [True]


def test_bad_facts_are_one_line_and_take_no_other_with_them(caplog: pytest.LogCaptureFixture) -> None:
    """Also one that is no fact at all."""
    shipped = sink()
    for caller in ("a", "\ud800", "b", "\udfff"):
        shipped.grant_issued(grant(caller))
    shipped.grant_issued("no fact")  # type: ignore[arg-type]  # that is the point
    shipped.tick(everything=True)
    assert (2, 3) == (shipped.shipper.facts_delivered, shipped.shipper.facts_lost)
    assert 2 == len(lines(caplog))


def test_kinds_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """Made-up names must not fill the memory nor the log, nor break a line of it."""
    faults = FaultLog()
    with caplog.at_level(logging.ERROR, "tallygate.stream"):
        for number in range(500):
            faults.note("decisions", "field\n" + "x" * number + " is wrong")
            faults.flush()
    assert 100 == len(caplog.records)
    assert "\n" not in caplog.records[0].getMessage()
