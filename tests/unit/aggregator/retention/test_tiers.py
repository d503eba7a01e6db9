"""The register of retention: every table has its tier, and what a TTL says is what the settings say."""

from __future__ import annotations

import re

import pytest

from aggregator.config import AggregatorConfig
from aggregator.retention.tiers import BY_THEMSELVES, FOR_GOOD, TIERS, Keep, ttl_of
from aggregator.sql import migrations


def test_every_table_has_a_tier_or_a_reason_to_be_kept_for_good() -> None:
    """A table that nobody thought of grows until the disk is full, or keeps what was to be gone."""
    made = {
        match[1]
        for step in migrations()
        for statement in step.statements
        if (match := re.match(r"CREATE TABLE IF NOT EXISTS (\w+)", statement))
    }
    # The migrations' own list is not made by one.
    assert {*made, "migrations"} == {*TIERS, *FOR_GOOD, *BY_THEMSELVES, "decisions"}
    assert set() == TIERS.keys() & FOR_GOOD.keys()


def test_ttl_of_decisions_has_both_tiers_and_ends_with_a_day() -> None:
    """A time of day in it would rewrite the same day again and again."""
    assert "toDate(at) + toIntervalDay(15) WHERE allowed, toDate(at) + toIntervalDay(91)" == ttl_of("decisions", Keep())


def test_ttl_of_a_tables_month_is_that_of_its_partitions() -> None:
    """Then a whole partition goes at once, and none is rewritten."""
    partitioned = {
        match[1]: match[2]
        for step in migrations()
        for statement in step.statements
        if (match := re.search(r"EXISTS (\w+) .*PARTITION BY toYYYYMM\((.*)\)\nORDER BY", statement, re.DOTALL))
    }
    assert {"grants", "settlements", "blocks"} <= partitioned.keys()
    assert {name: TIERS[name].time for name in partitioned} == partitioned


def test_refused_decisions_stay_at_least_as_long_as_admitted_ones() -> None:
    """One statement of a TTL drops a whole day: it must not take admitted rows that are still to be kept."""
    environ = {"TALLYGATE_KEEP_ADMITTED_DAYS": "120", "TALLYGATE_KEEP_MINUTES_DAYS": "30"}
    assert Keep(120, 120, 30, 10) == AggregatorConfig.from_env(environ).keep


def test_ttl_of_a_table_that_is_kept_for_good_is_an_error() -> None:
    """No TTL by accident."""
    with pytest.raises(KeyError):
        ttl_of("migrations", Keep())
