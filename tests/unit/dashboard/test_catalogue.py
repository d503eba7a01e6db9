"""The catalogue of queries as text: what keeps one tenant's rows from another must be seen before it runs."""

from __future__ import annotations

import re

import pytest

from aggregator.sql import NamedQuery, load_queries, migrations
from dashboard.store import CALLER, FLEET, SUPPORT, TENANT_TABLES, row_filter

CATALOGUE = load_queries("dashboard.sql", "queries.sql")
_TABLE = re.compile(r"\b(?:FROM|JOIN)\s+([a-z_]+)\b", re.IGNORECASE)


def of(audience: str) -> list[NamedQuery]:
    """All queries of one audience."""
    return [query for name, query in CATALOGUE.items() if name.startswith(f"{audience}_")]


def test_every_query_says_who_may_run_it() -> None:
    """A query outside the three kinds would run under no rule."""
    assert set(CATALOGUE) == {query.name for audience in (CALLER, FLEET, SUPPORT) for query in of(audience)}


@pytest.mark.parametrize("query", of(CALLER), ids=lambda query: query.name)
def test_a_query_about_a_caller_binds_the_caller_at_every_table(query: NamedQuery) -> None:
    """One table without the condition is another tenant's rows in a join."""
    tables = [table for table in _TABLE.findall(query.sql) if table in TENANT_TABLES]
    assert tables
    assert len(tables) == query.sql.count("caller = {caller:String}")


@pytest.mark.parametrize("query", of(FLEET), ids=lambda query: query.name)
def test_a_query_about_the_fleet_reads_no_row_of_a_caller(query: NamedQuery) -> None:
    """It runs without a row filter, so it may touch only rows that belong to nobody."""
    assert set(_TABLE.findall(query.sql)) <= {"live", "control", "blocks"}
    assert "caller" not in query.sql
    if "live" in _TABLE.findall(query.sql):
        assert "WHERE kind = 'copy'" in query.sql


@pytest.mark.parametrize("query", CATALOGUE.values(), ids=lambda query: query.name)
def test_a_query_only_reads_tables_of_ours(query: NamedQuery) -> None:
    """system.processes shows other people's queries, file() the disk, url() the network."""
    ours = {found for step in migrations() for found in re.findall(r"CREATE TABLE IF NOT EXISTS (\w+)", step.text)}
    assert set(_TABLE.findall(query.sql)) <= ours
    assert query.sql.lstrip().startswith("SELECT")
    assert ";" not in query.sql
    assert "system." not in query.sql
    assert re.search(r"\b(INSERT|OUTFILE|FORMAT|SETTINGS|merge|url|file|remote|loop)\b", query.sql) is None


@pytest.mark.parametrize("query", CATALOGUE.values(), ids=lambda query: query.name)
def test_a_query_reads_replacing_tables_with_final(query: NamedQuery) -> None:
    """Rows that were written twice count once: without FINAL they count twice until parts merge."""
    if query.name == "support_callers":
        assert "DISTINCT" in query.sql
        return
    assert len(_TABLE.findall(query.sql)) == len(re.findall(r"\bFINAL\b", query.sql))


def test_the_fence_names_every_table_with_a_caller() -> None:
    """A table that the fence forgets is open to a query that forgets its condition."""
    text = "\n".join(step.text for step in migrations())
    tables = re.findall(r"CREATE TABLE IF NOT EXISTS (\w+) \((.*?)\n\) ENGINE", text, re.DOTALL)
    with_caller = {name for name, columns in tables if re.search(r"^\s*caller ", columns, re.MULTILINE)}
    assert with_caller == set(TENANT_TABLES)


@pytest.mark.parametrize("caller", ["acme", "o'brien", "x\\'} OR 1=1 --", "naïve ☃", "') OR ('1'='1"])
def test_the_fence_holds_no_character_of_the_caller(caller: str) -> None:
    """A caller's name may hold quotes; as digits it cannot end a literal."""
    text = row_filter(caller)
    digits = caller.encode().hex()
    assert len(TENANT_TABLES) == text.count(f"unhex(\\'{digits}\\')")
    assert re.fullmatch(r"[a-z0-9_{}:,=()\\' ]+", text)
