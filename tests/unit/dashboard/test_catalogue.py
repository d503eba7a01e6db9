"""The catalogue of queries as text: what keeps one tenant's rows from another must be seen before it runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dashboard
from aggregator.sql import NamedQuery, load_queries, migrations
from dashboard.store import CALLER, FLEET, SUPPORT, TENANT_TABLES, row_filter

CATALOGUE = load_queries("dashboard.sql", "queries.sql")
#: Of minutes with wrong live totals, without whose they are.
_FLEETS = {
    *("live", "control", "blocks", "missing_minutes", "rolled_quarters", "settled_progress", "recorded"),
    "disagreements",
}
#: Look for names only, of which rows that count no more have the same.
_NAMES = {"support_callers", "support_holder"}
#: Minutes of the journal: a flush that stands there twice names the same ones.
_JOURNAL = re.compile(r"groupUniqArrayArray\(minutes\)\s*\)\s*FROM recorded\n")
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
    assert set(_TABLE.findall(query.sql)) <= _FLEETS
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
    if query.name in _NAMES:
        assert "DISTINCT" in query.sql
        return
    asked = _JOURNAL.sub("", query.sql)
    assert len(_TABLE.findall(asked)) == len(re.findall(r"\bFINAL\b", asked))


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


def test_every_query_that_the_pages_name_stands_in_the_catalogue() -> None:
    """One that was renamed under its caller ends the process at its start, or a page in the middle."""
    sources = "\n".join(path.read_text() for path in Path(dashboard.__file__).parent.rglob("*.py"))
    named = set(re.findall(rf'"((?:{CALLER}|{FLEET}|{SUPPORT})_[a-z_]+)"', sources))
    assert len(named) > 5
    assert named <= set(CATALOGUE)
