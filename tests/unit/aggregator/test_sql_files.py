"""The SQL as text: that it is split rightly, and that the tables are what the rest of the code relies on."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pyarrow as pa
import pytest

from aggregator.core.record import facts as fact_batches
from aggregator.core.record import letters
from aggregator.core.record.batches import Gathered, decision_batches
from aggregator.core.record.blocks import block_batches
from aggregator.core.record.journal import Stretch, journal_batch
from aggregator.core.record.terms import TermsWritten, terms_shown
from aggregator.sql import (
    SqlFileError,
    composed,
    in_order,
    load_queries,
    migrations,
    parse_queries,
    read_migration,
    split_statements,
)
from enforcer.messages import SettleCause
from enforcer.types import Reason, Source
from stream.contract.block import DecisionBlock, OtherCharge
from tests.recordblocks import MIDNIGHT_US, Made, at, make_block

ROOT = Path(__file__).resolve().parents[3]
#: What the pages of operators and of policies ask once they are there: the second stage writes its table for them.
_FOR_PAGES_TO_COME = {
    "signals_caller",
    "signals_copies",
    "signals_fleet",
    "signals_hot_keys",
    "signals_movers",
    "signals_retry_storms",
    "signals_windows",
    "would_be_refusals",
}
#: The identity of a row: a replay must meet itself, so all of it stands in the sort key.
IDENTITIES = {
    "decisions": {"copy_id", "epoch", "seq"},
    "blocks": {"copy_id", "epoch", "first_seq", "block_hash"},
    "conflicts": {"copy_id", "epoch", "seq", "log_partition", "log_offset"},
    "grants": {"caller", "limit", "grant_id"},
    "settlements": {"caller", "limit", "grant_id", "spent_tokens", "final", "cause"},
    "cost_changes": {"caller", "scope", "copy_id", "epoch", "requests"},
    "control": {"kind", "copy_id", "epoch", "at", "body"},
    "dead_letters": {"topic", "log_partition", "log_offset"},
    "terms": {"caller", "limit", "policy_version", "plan", "rate_per_s", "burst", "per"},
    "redriven": {"topic", "log_partition", "log_offset", "log_id"},
    "recorded": {"topic", "log_partition", "log_id", "first_offset", "next_offset"},
}


def _tables() -> dict[str, str]:
    statements = [statement for step in migrations() for statement in step.statements]
    return {
        match.group(1): statement
        for statement in statements
        if (match := re.match(r"CREATE TABLE IF NOT EXISTS (\w+) \(", statement))
    }


def _columns(table: str) -> list[str]:
    statement = _tables()[table]
    body = statement[statement.index("(") : statement.index(") ENGINE")]
    added = [
        name
        for step in migrations()
        for statement in step.statements
        if re.match(rf"ALTER TABLE {table}\s", statement)
        for name in re.findall(r"ADD COLUMN IF NOT EXISTS\s+(\w+) ", statement)
    ]
    return [*(name for name in re.findall(r"^    (\w+) ", body, re.MULTILINE) if name != "INDEX"), *added]


def test_migrations_run_from_one_without_a_gap() -> None:
    """The order is the meaning."""
    steps = migrations()
    assert list(range(1, len(steps) + 1)) == [step.number for step in steps]
    assert "record" == steps[0].name


def test_migrations_may_be_repeated() -> None:
    """A migration that was cut off half way is run again from its first statement."""
    for step in migrations():
        for statement in step.statements:
            allowed = r"IF NOT EXISTS|IF EXISTS|^ALTER TABLE \w+ MODIFY (SETTING|COLUMN) |^INSERT INTO recorded "
            assert re.search(allowed, statement), statement


@pytest.mark.parametrize("table", sorted(IDENTITIES))
def test_record_tables_have_their_identity_in_the_sort_key(table: str) -> None:
    """A row written twice is the same row only if its identity is in the key, and nothing that differs between them."""
    statement = _tables()[table]
    assert "ENGINE = ReplacingMergeTree" in statement
    key = set(re.findall(r"\w+", statement[statement.index("ORDER BY") :])) - {"ORDER", "BY", "toStartOfMinute"}
    assert key >= IDENTITIES[table]
    assert "seen_at" not in key


def test_decisions_are_partitioned_by_a_function_of_their_key() -> None:
    """Repetitions must meet in one partition, or FINAL does not fold them."""
    statement = _tables()["decisions"]
    assert "PARTITION BY toDate(at)" in statement
    assert "ORDER BY (caller, toStartOfMinute(at), copy_id, epoch, seq)" in statement


@pytest.mark.parametrize(
    ("table", "column", "kinds"),
    [("decisions", "source", Source), ("decisions", "reason", Reason), ("settlements", "cause", SettleCause)],
)
def test_enumerations_in_sql_are_those_of_the_enforcer(
    table: str, column: str, kinds: type[Source | Reason | SettleCause]
) -> None:
    """A number that the table does not know would be refused, and stop the record."""
    match = re.search(rf"^    {column} Enum8\((.*?)\)", _tables()[table], re.MULTILINE)
    assert match is not None
    assert {kind.name.lower(): int(kind) for kind in kinds} == {
        name: int(number) for name, number in re.findall(r"'(\w+)' = (\d+)", match.group(1))
    }


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        ("decisions", lambda: decision_batches([at(_charged_block(), 0)])[0].rows.column_names),
        ("blocks", lambda: block_batches([at(make_block([]), 0)])[0].rows.column_names),
        ("conflicts", lambda: fact_batches.conflict_batches([at(make_block([Made()]), 0)])[0].rows.column_names),
        ("grants", lambda: _names(fact_batches._GRANTS)),
        ("settlements", lambda: _names(fact_batches._SETTLEMENTS)),
        ("cost_changes", lambda: _names(fact_batches._COST_CHANGES)),
        ("control", lambda: _names(fact_batches._CONTROL)),
        ("dead_letters", lambda: _names(letters._DEAD_LETTERS)),
        ("terms", lambda: TermsWritten().unwritten(terms_shown(_one_block()))[0].rows.column_names),
        ("recorded", lambda: journal_batch([Stretch("", "t", 0, 0, 1)], [])[0].rows.column_names),
    ],
)
def test_batches_fill_every_column_of_their_table(table: str, columns: object) -> None:
    """A column left out would silently be its default for ever."""
    assert callable(columns)
    assert sorted(_columns(table)) == sorted(columns())


def _charged_block() -> DecisionBlock:
    block = make_block([Made()])
    block.bases.also.append(OtherCharge(0, "(everyone)", "site", MIDNIGHT_US))
    return block


def _one_block() -> Gathered:
    return Gathered([at(make_block([Made()]), 0)])


def _names(schema: pa.Schema) -> list[str]:
    names: list[str] = schema.names
    return names


def test_split_statements_leaves_out_comments_and_keeps_semicolons_in_lines() -> None:
    """A statement that begins with a comment, or holds a semicolon in a text, is still one statement."""
    assert ["SELECT ';x'", "SELECT 2\nFROM t"] == split_statements("-- a; b\nSELECT ';x';\n\n-- c\nSELECT 2\nFROM t;\n")


def test_read_migration_has_one_checksum_for_both_line_ends() -> None:
    """A checkout on another system is not an edit."""
    assert (
        read_migration("0001_a.sql", "SELECT 1;\r\n").checksum == read_migration("0001_a.sql", "SELECT 1;\n").checksum
    )


@pytest.mark.parametrize(
    ("name", "text"), [("1_a.sql", "SELECT 1;"), ("0001-a.sql", "SELECT 1;"), ("0001_a.sql", "-- x\n")]
)
def test_read_migration_refuses_a_malformed_file(name: str, text: str) -> None:
    """A file that is silently not applied is worse than one that is refused."""
    with pytest.raises(SqlFileError, match=re.escape(name)):
        read_migration(name, text)


def test_in_order_refuses_a_gap_and_a_repetition() -> None:
    """Two branches that each add 0003 must be noticed when they meet."""
    one, two, other_two = (read_migration(f"{name}.sql", "SELECT 1;") for name in ("0001_a", "0002_b", "0002_c"))
    assert (one, two) == in_order([two, one])
    for wrong in ([two], [one, two, other_two]):
        with pytest.raises(SqlFileError, match="numbered"):
            in_order(wrong)


def test_parse_queries_reads_names_sentences_and_statements() -> None:
    """The catalogue is the only place that SQL comes from."""
    queries = parse_queries(
        "q.sql", "-- head\n\n-- name: one\n-- First.\n-- More.\nSELECT 1;\n-- name: two\n-- Second.\nSELECT 2;"
    )
    assert {"one": ("First. More.", "SELECT 1"), "two": ("Second.", "SELECT 2")} == {
        query.name: (query.about, query.sql) for query in queries.values()
    }


@pytest.mark.parametrize(
    "text",
    [
        "-- name: a\nSELECT 1;",
        "-- name: a\n-- Says.\nSELECT 1;\nSELECT 2;",
        "-- name: a\n-- Says.\n",
        "-- name: A b\n-- Says.\nSELECT 1;",
        "-- name: a\n-- Says.\nSELECT 1;\n-- name: a\n-- Says.\nSELECT 1;",
    ],
)
def test_parse_queries_refuses_what_is_not_one_named_statement(text: str) -> None:
    """Several statements in one string would be executed one after the other."""
    with pytest.raises(SqlFileError, match=r"q\.sql"):
        parse_queries("q.sql", text)


def test_record_queries_bind_every_value_and_read_replacing_tables_rightly() -> None:
    """Without FINAL a replayed row counts twice."""
    for query in load_queries("aggregator.sql", "record.sql").values():
        assert "'" not in query.sql, "a literal in the text is a value that was not bound"
        assert re.search(r"FINAL|DISTINCT|max\(|min\(", query.sql), query.name


def _asked(package: Path) -> tuple[set[str], set[str]]:
    """The names of a package's queries, and those that somebody asks.

    A query is asked where code beside that which loads its file names it, or where another of its file stands on it.
    """
    names, asked = set[str](), set[str]()
    said = {path: _literals(path) for path in package.rglob("*.py")}
    for file in (package / "sql").glob("*.sql"):
        text = file.read_text("utf-8")
        own = set(re.findall(r"^-- name: (\w+)", text, re.MULTILINE))
        folders = {path.parent for path, words in said.items() if file.name in words}
        named = {word for path, words in said.items() if path.parent in folders for word in words}
        names |= own
        asked |= own & (named | set(re.findall(r"\((\w+)\)", text)))
    return names, asked


def _literals(path: Path) -> set[str]:
    tree = ast.walk(ast.parse(path.read_text("utf-8")))
    return {node.value for node in tree if isinstance(node, ast.Constant) and isinstance(node.value, str)}


@pytest.mark.parametrize(("package", "to_come"), [("aggregator", _FOR_PAGES_TO_COME), ("dashboard", set())])
def test_every_query_is_asked_by_somebody(package: str, to_come: set[str]) -> None:
    """What only tests ask is right for nobody, and is corrected for ever."""
    names, asked = _asked(ROOT / package)
    assert names - asked == to_come


def test_composed_query_holds_the_queries_that_it_stands_on() -> None:
    """What a grant's account is stands in one place; every question about grants is asked of that."""
    whole = composed("audit_grants.sql", "ledger")
    assert whole.count("FROM decisions FINAL") == 2
    assert not re.search(r"\((accounts|named)\)", whole)
    assert (
        composed("audit_grants.sql", "decided_until")
        == load_queries("aggregator.sql", "audit_grants.sql")["decided_until"].sql
    )
    with pytest.raises(SqlFileError, match="there is no query 'x'"):
        composed("audit_grants.sql", "x")
