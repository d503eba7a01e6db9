"""The SQL of the aggregator, kept as text files: numbered migrations and named queries.

Reads package data only; never talks to a database, and never puts a value into a statement.

In every file a comment is a line that begins with ``--``, and a statement ends with ``;`` at the end of a line.
A named query begins with ``-- name: the_name``; the comment lines after it say what it answers.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

_MIGRATION_FILE = re.compile(r"([0-9]{4})_([a-z0-9_]+)\.sql\Z")
_QUERY_NAME = re.compile(r"--\s*name:\s*(.*)\Z")
_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")


class SqlFileError(Exception):
    """A `.sql` file is not in the form that this package reads; names the file and the fault."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered step of the schema. `checksum` is the SHA-256 of its text, in hexadecimal."""

    number: int
    name: str
    text: str = field(repr=False)
    checksum: str

    @property
    def statements(self) -> list[str]:
        """Its statements in order, without comments and semicolons."""
        return split_statements(self.text)


@dataclass(frozen=True, slots=True)
class NamedQuery:
    """One SELECT with bound parameters (``{name:Type}``), and the sentence that says what it answers."""

    name: str
    about: str
    sql: str


def split_statements(text: str) -> list[str]:
    """The statements of a file, without comment lines and the closing semicolons."""
    kept = "\n".join(line.rstrip() for line in text.splitlines() if not line.lstrip().startswith("--"))
    return [part.strip() for part in re.split(r";$", kept, flags=re.MULTILINE) if part.strip()]


def read_migration(file_name: str, text: str) -> Migration:
    """One migration from its file's name and text; line ends do not count for the checksum.

    Raises:
        SqlFileError: the name is not ``NNNN_words.sql``, or there is no statement in it.
    """
    match = _MIGRATION_FILE.match(file_name)
    if match is None:
        raise SqlFileError(f"{file_name}: a migration's file is named NNNN_words.sql, as in 0001_record.sql")
    text = "\n".join(text.splitlines())
    if not split_statements(text):
        raise SqlFileError(f"{file_name}: there is no statement in it")
    return Migration(int(match.group(1)), match.group(2), text, hashlib.sha256(text.encode()).hexdigest())


def in_order(found: Iterable[Migration]) -> tuple[Migration, ...]:
    """Migrations sorted by number, which must run from 1 without a gap or a repetition.

    Raises:
        SqlFileError: they do not.
    """
    ordered = tuple(sorted(found, key=lambda migration: migration.number))
    numbers = [migration.number for migration in ordered]
    if numbers != list(range(1, len(numbers) + 1)):
        raise SqlFileError(f"migrations are numbered {numbers}; allowed: 1, 2, 3 … without a gap or a repetition")
    return ordered


@cache
def migrations() -> tuple[Migration, ...]:
    """All migrations of this release, in the order in which they are applied."""
    files = [file for file in (resources.files(__name__) / "migrations").iterdir() if file.name.endswith(".sql")]
    return in_order(read_migration(file.name, file.read_text("utf-8")) for file in files)


def parse_queries(file_name: str, text: str) -> dict[str, NamedQuery]:
    """The named queries of one file.

    Raises:
        SqlFileError: a name is malformed or used twice, or a query has no sentence or not exactly one statement.
    """
    queries: dict[str, NamedQuery] = {}
    name, lines = "", list[str]()
    for line in [*text.splitlines(), "-- name: "]:
        match = _QUERY_NAME.match(line.strip())
        if match is None:
            lines.append(line)
            continue
        if name:
            queries[name] = _named_query(file_name, name, lines)
        name, lines = match.group(1).strip(), []
        if name in queries or (name and _NAME.match(name) is None):
            raise SqlFileError(f"{file_name}: query name {name!r} is used twice or malformed; allowed: a-z 0-9 _")
    return queries


def _named_query(file_name: str, name: str, lines: list[str]) -> NamedQuery:
    about = " ".join(line.strip().lstrip("-").strip() for line in lines if line.strip().startswith("--"))
    statements = split_statements("\n".join(lines))
    if not about or len(statements) != 1:
        raise SqlFileError(f"{file_name}: {name} needs one sentence about it and exactly one statement")
    return NamedQuery(name, about, statements[0])


@cache
def load_queries(package: str, file_name: str) -> dict[str, NamedQuery]:
    """The named queries of a file that is data of `package`, as in ``load_queries("aggregator.sql", "record.sql")``."""
    return parse_queries(file_name, (resources.files(package) / file_name).read_text("utf-8"))


@cache
def composed(file_name: str, name: str, **parts: str) -> str:
    """One query of ours that stands on others of its file: where it says ``(other)``, the query `other` stands in it.

    Args:
        file_name: of this package.
        name: the query.
        parts: which query of the file stands where it says ``(part)``, where that is not the one of that name.

    Raises:
        SqlFileError: there is no query of a name.
    """
    queries = load_queries(__name__, file_name)
    if name not in queries:
        raise SqlFileError(f"{file_name}: there is no query {name!r}")

    def stand_in(match: re.Match[str]) -> str:
        other = parts.get(match[1], match[1])
        return f"(\n{composed(file_name, other, **parts)}\n)" if other in queries else match[0]

    return re.sub(r"\(([a-z][a-z0-9_]*)\)(?= AS |\n| WHERE )", stand_in, queries[name].sql)
