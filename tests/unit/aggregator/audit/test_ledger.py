"""How the ledger is told: the sum in one line an hour, and what is beside it."""

from __future__ import annotations

import dataclasses

from aggregator.audit.counts.grants import LedgerHour
from aggregator.audit.ledger import answer
from aggregator.words import Span

HOUR = LedgerHour(1_767_312_000, 2, 100, 60, 20, 15, 5, 0, 0, 0, 0, 0, 0)


def test_ledger_that_adds_up_is_one_line_an_hour() -> None:
    """People check the sum by eye."""
    told = answer([HOUR, dataclasses.replace(HOUR, hour_s=HOUR.hour_s + 3_600)], Span(), "acme")
    assert told.text().splitlines() == [
        "agrees: 200 tokens in 4 grants of caller acme, all that is recorded",
        "2026-01-02T00:00:00.000000Z: granted 100 = spent 60 + returned 20 + credited 15 + outstanding 5",
        "2026-01-02T01:00:00.000000Z: granted 100 = spent 60 + returned 20 + credited 15 + outstanding 5",
    ]


def test_ledger_that_does_not_add_up_names_the_rest_and_what_stands_beside_it() -> None:
    """A rest without a name would look like an error of addition."""
    hour = dataclasses.replace(
        HOUR,
        granted=103,
        missing=7,
        surplus=4,
        adjusted=-3,
        given_back_and_spent=2,
        not_on_record=1,
        spent_not_on_record=9,
    )
    told = answer([hour], Span(), None)
    assert not told.agrees
    assert told.findings[0].line == (
        "2026-01-02T00:00:00.000000Z: granted 103 = spent 60 + returned 20 + credited 15 + outstanding 5 + missing 7 "
        "- surplus 4; adjusted after the fact -3; given back and spent all the same 2; spent of 1 grant not on record 9"
    )
    assert told.findings[0].facts["missing"] == 7
