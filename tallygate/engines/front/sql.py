"""What the front must know of a statement before the engine sees it.

Where an INSERT's data begins, which format a result has, whether it would touch files or other hosts. Reads words, not
grammar; the engine's own parser judges the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

#: The engine reads no more than this of a statement before an INSERT's data (its ``max_query_size``).
HEAD_BYTES = 262_144

_WORD = re.compile(
    rb"""(?P<skip>\s+|--[^\n]*|\#[ !][^\n]*|/\*.*?(?:\*/|\Z))
    |'(?:[^'\\]++|\\.|'')*+'
    |(?P<quoted>`(?:[^`\\]++|\\.|``)*+`|"(?:[^"\\]++|\\.|"")*+")
    |\$(?P<tag>\w*)\$.*?\$(?P=tag)\$
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |[0-9][0-9A-Za-z_.]*
    |(?P<open>[(\[{])
    |(?P<close>[)\]}])
    |.""",
    re.DOTALL | re.VERBOSE,
)

#: Table functions, engines and dictionary sources that reach files, programs, other hosts or this interpreter.
_OUTSIDE = frozenset(
    b"""file filecluster url urlcluster remote remotesecure cluster clusterallreplicas executable executablepool s3
    s3cluster gcs hdfs hdfscluster azureblobstorage azureblobstoragecluster mysql postgresql mongodb redis sqlite jdbc
    odbc iceberg iceberglocal icebergs3 deltalake deltalakelocal hudi arrowflight ytsaurus python http clickhouse
    filelog distributed""".split()
)


@dataclass(frozen=True, slots=True)
class InsertHead:
    """An INSERT whose rows follow as bytes of a format.

    Attributes:
        head: the statement without its FORMAT clause.
        format_name: the input format.
        data_offset: where the rows begin in the text.
    """

    head: bytes
    format_name: str
    data_offset: int


@dataclass(frozen=True, slots=True)
class _Word:
    name: bytes
    end: int
    start: int
    depth: int


def split_insert(text: bytes) -> InsertHead | None:
    """Find the end of an INSERT's head; None when it carries its rows as SQL, or is no INSERT at all."""
    words = _words(text[:HEAD_BYTES])
    first = next(words, None)
    if first is None or first.name != b"insert":
        return None
    wants_format: _Word | None = None
    for word in words:
        if wants_format is not None and word.name:
            name = text[word.start : word.end].decode("ascii", "replace")
            return InsertHead(text[: wants_format.start], name, _data_start(text, word.end))
        if word.depth == 0 and word.name in {b"values", b"select", b"with", b"watch"}:
            return None
        wants_format = word if word.depth == 0 and word.name == b"format" else None
    return None


def split_settings(head: bytes) -> tuple[bytes, bytes]:
    """An INSERT's head without its SETTINGS clause, and the clause, which must follow the source of the rows."""
    words = list(_words(head))
    for word, name, equals in zip(words, words[1:], words[2:], strict=False):
        # A table or a column may be called "settings"; only the clause is followed by ``name =``.
        is_clause = name.name and head[equals.start : equals.end] == b"="
        if word.depth == 0 and word.name == b"settings" and is_clause:
            return head[: word.start], head[word.start :]
    return head, b""


def output_format(text: bytes) -> str | None:
    """The format that the statement's own FORMAT clause names; None without one."""
    found: str | None = None
    after_format = False
    for word in _words(text):
        if after_format and word.name:
            found = text[word.start : word.end].decode("ascii", "replace")
        elif word.name == b"settings" or text[word.start : word.end] == b";":
            break
        else:
            # Only the last clause counts: a column may be called "format" too.
            found = None
        after_format = word.depth == 0 and word.name == b"format"
    return found


def first_word(text: bytes) -> str:
    """The first keyword, in lower case; ``(`` for a statement in brackets, empty for no statement."""
    for word in _words(text):
        return (word.name or text[word.start : word.end]).decode("ascii", "replace")
    return ""


def reaches_outside(text: bytes) -> str | None:
    """The word by which the statement would reach a file, a program or another host; None when it does not.

    A fence against mistakes and stray requests, beside the engine's own read-only mode.
    """
    previous = b""
    for word in _words(text):
        symbol = word.name or text[word.start : word.end]
        if symbol == b"(" and previous in _OUTSIDE:
            return f"{previous.decode()}("
        if symbol in {b"infile", b"outfile"} and previous in {b"from", b"into"}:
            return f"{previous.decode()} {symbol.decode()}".upper()
        previous = symbol
    return None


def _words(text: bytes) -> Iterator[_Word]:
    depth = 0
    for match in _WORD.finditer(text):
        kind = match.lastgroup
        if kind == "skip":
            continue
        if kind == "close":
            depth -= 1
        name = b""
        if kind == "name":
            name = match.group().lower()
        elif kind == "quoted":
            name = match.group()[1:-1].lower()
        yield _Word(name, match.end(), match.start(), depth)
        if kind == "open":
            depth += 1


def _data_start(text: bytes, position: int) -> int:
    """Rows begin after the first newline behind the format's name, or after its blanks when there is none."""
    while text[position : position + 1] in {b" ", b"\t", b"\f"}:
        position += 1
    if text[position : position + 1] == b"\r":
        position += 1
    if text[position : position + 1] == b"\n":
        position += 1
    return position
