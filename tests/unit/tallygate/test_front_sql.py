"""What the front reads of a statement before the engine does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallygate.engines.front.errors import FrontError
from tallygate.engines.front.fence import reaches_outside
from tallygate.engines.front.sql import first_word, output_format, split_insert, split_settings


@pytest.mark.parametrize(
    ("text", "head", "format_name", "rows"),
    [
        (b"INSERT INTO t FORMAT Native\n\x01\x02", b"INSERT INTO t ", "Native", b"\x01\x02"),
        (b"insert into t (`format`, a) format TSV 1\t2\n", b"insert into t (`format`, a) ", "TSV", b"1\t2\n"),
        (b"INSERT INTO t FORMAT TSV  \r\n\n1", b"INSERT INTO t ", "TSV", b"\n1"),
        (b"/* FORMAT x */ INSERT INTO t -- FORMAT y\n FORMAT CSV\n'", None, "CSV", b"'"),
        (b"INSERT INTO t SETTINGS a = 'x;FORMAT y' FORMAT CSV\n", None, "CSV", b""),
        (b"INSERT INTO db.t (a, s) FORMAT ArrowStream\n\xff\xff\xff\xff;DROP", None, "ArrowStream", None),
    ],
)
def test_split_insert_finds_where_the_rows_begin(
    text: bytes, head: bytes | None, format_name: str, rows: bytes | None
) -> None:
    """One byte too many or too few spoils every binary format."""
    insert = split_insert(text)
    assert insert is not None
    assert format_name == insert.format_name
    if head is not None:
        assert head == insert.head
    if rows is not None:
        assert rows == text[insert.data_offset :]


@pytest.mark.parametrize(
    "text",
    [
        b"SELECT 1 FORMAT Native",
        b"INSERT INTO t VALUES (1, 'FORMAT x')",
        b"INSERT INTO t SELECT 1 FORMAT Native",
        b"INSERT INTO t (a) WITH 1 AS x SELECT x",
        b"INSERT INTO t",
        b"",
        b"-- INSERT INTO t FORMAT Native",
    ],
)
def test_split_insert_leaves_other_statements_whole(text: bytes) -> None:
    """A SELECT cut at its FORMAT would run without it."""
    assert split_insert(text) is None


@given(st.binary(max_size=200))
def test_split_insert_never_looks_into_the_rows(rows: bytes) -> None:
    """Rows are bytes of anything: quotes, comment signs, semicolons."""
    text = b"INSERT INTO t (a) FORMAT RowBinary\n" + rows
    insert = split_insert(text)
    assert insert is not None
    assert rows == text[insert.data_offset :]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (b"SELECT 1 SETTINGS max_block_size = 1000, a = 'x'\nFORMAT Arrow", "Arrow"),
        (b"SELECT 1", None),
        (b"SELECT 1 FORMAT JSON", "JSON"),
        (b"SELECT 1\n FORMAT Native;", "Native"),
        (b"SELECT 1 FORMAT CSV SETTINGS max_threads = 1", "CSV"),
        (b"SELECT format FROM t", None),
        (b"SELECT 'FORMAT JSON'", None),
        (b"SELECT 1 /* FORMAT JSON */", None),
        (b"SELECT format FROM t FORMAT TSV -- end", "TSV"),
    ],
)
def test_output_format_is_that_of_the_last_clause(text: bytes, name: str | None) -> None:
    """It decides whether a result may be sent block by block."""
    assert name == output_format(text)


FILE = "file('/etc/hostname', 'LineAsString')"
#: Spellings that the engine runs and that hid the function: quotes, comments and blanks that it knows besides SQL's.
AROUND = [
    text.encode()
    for text in (
        f"SELECT 1 AS a$b$, x.* FROM {FILE} AS x, (SELECT 2 AS c$b$) AS y",
        f"SELECT 1 $a$ , x.* FROM {FILE} AS x",
        f"SELECT ‘'’, x.* FROM {FILE} x -- '",
        f"SELECT “'”.* FROM {FILE} “'” -- '",
        f"SELECT x.* // '\n FROM {FILE} x -- '",
        "SELECT * FROM `fi\\x6ce`('/etc/hostname', 'LineAsString')",
        "SELECT * FROM “file”('/etc/hostname', 'LineAsString')",
        "SELECT * FROM file\u00a0('/etc/hostname', 'LineAsString')",
        "SELECT * FROM file\u200b\u3000('/etc/hostname', 'LineAsString')",
        "SELECT * FROM file\ufeff/* ' */('/etc/hostname', 'LineAsString')",
    )
]


@pytest.mark.parametrize(
    "text",
    [
        b"SELECT * FROM file('/etc/passwd')",
        b"SELECT * FROM FILE ('/etc/passwd')",
        b"SELECT * FROM `file`('/etc/passwd')",
        b"SELECT * FROM \"file\"('x')",
        b"SELECT * FROM file/**/('x')",
        b"SELECT * FROM file -- '\n('x')",
        b"INSERT INTO FUNCTION url('http://x', TSV) SELECT 1",
        b"CREATE TABLE t (a Int8) ENGINE = File(TSV)",
        b"CREATE DICTIONARY d (a UInt64) PRIMARY KEY a SOURCE(EXECUTABLE(COMMAND 'id'))",
        b"SELECT 1 INTO OUTFILE '/tmp/x'",
        b"INSERT INTO t FROM INFILE '/etc/passwd' FORMAT TSV",
        b"SELECT * FROM Python(reader)",
        *AROUND,
    ],
)
def test_reaches_outside_sees_through_case_quotes_and_comments(text: bytes) -> None:
    """A statement that reads a file of this machine would hand it to whoever asked."""
    assert reaches_outside(text) is not None


@pytest.mark.parametrize(
    "text",
    [
        b"SELECT url, file FROM t WHERE url = 'file(x)'",
        b"SELECT 'INTO OUTFILE'",
        b"SELECT 1 -- file('x')",
        b"INSERT INTO t (file, url) VALUES ('a', 'b')",
        b"SELECT domain(url) FROM t",
        b"SELECT $a$file('x')$a$, 1 // file('x')\n",
        "SELECT ‘file(x)’, “file” FROM t".encode(),
        b"SELECT a$b FROM t WHERE x IN (1, 'file(', 2.5)",
    ],
)
def test_reaches_outside_lets_columns_and_strings_be(text: bytes) -> None:
    """`url` and `file` are ordinary names of columns."""
    assert reaches_outside(text) is None


def test_first_word_skips_comments() -> None:
    """The class of some statements hangs on it."""
    assert first_word(b"  -- x\n /* y */ SELECT 1") == "select"
    assert first_word(b"(SELECT 1)") == "("
    assert first_word(b" ") == ""


def test_words_are_read_in_linear_time() -> None:
    """An unclosed quote must not make the front think for ever; with backtracking this would take years."""
    assert reaches_outside(b"SELECT '" + b"a" * 200_000) is None
    assert reaches_outside(b"SELECT '" + b"''" * 100_000 + b"\\") is None
    for opened in (b"'\\", b"/*", "‘".encode(), "“".encode()):
        assert reaches_outside(b"SELECT " + opened * 200_000) is None
    for opened in (b"`\\", b'"\\'):
        assert reaches_outside(b"SELECT " + opened * 200_000) is not None


def test_dollar_quotes_without_an_end_are_refused_when_they_are_many() -> None:
    """Each is looked for to the end of the text: a hundred thousand of them would take hours."""
    assert reaches_outside(b"SELECT " + b"".join(b"$%d$, " % number for number in range(16))) is None
    with pytest.raises(FrontError, match="dollar quotes"):
        reaches_outside(b"SELECT " + b"".join(b"$%d$, " % number for number in range(100_000)))


@pytest.mark.parametrize(
    ("head", "rest", "clause"),
    [
        (b"INSERT INTO t ", b"INSERT INTO t ", b""),
        (b"INSERT INTO t (a) SETTINGS a = 1, b = 'x' ", b"INSERT INTO t (a) ", b"SETTINGS a = 1, b = 'x' "),
        (b"INSERT INTO settings ", b"INSERT INTO settings ", b""),
        (b"INSERT INTO settings settings x=1", b"INSERT INTO settings ", b"settings x=1"),
        (b"INSERT INTO t (settings, a)", b"INSERT INTO t (settings, a)", b""),
        (b"INSERT INTO t /* SETTINGS a = 1 */ ", b"INSERT INTO t /* SETTINGS a = 1 */ ", b""),
    ],
)
def test_settings_of_an_insert_are_moved_whole_or_not_at_all(head: bytes, rest: bytes, clause: bytes) -> None:
    """Behind the source of the rows is the only place where the engine takes them."""
    assert split_settings(head) == (rest, clause)
