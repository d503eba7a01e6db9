"""What the front must know of a statement before the engine sees it.

Where an INSERT's data begins, which format a result has. Reads words, not grammar; the engine's own parser judges the
rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tallygate.engines.front.errors import Code, refusal

#: The engine reads no more than this of a statement before an INSERT's data (its ``max_query_size``).
HEAD_BYTES = 262_144

#: What the engine takes for a blank: those of ASCII, and those of Unicode in UTF-8.
_BLANK = rb"""(?:[\t-\r\x20]|\xc2[\x85\xa0]|\xe1\x9a\x80|\xe1\xa0\x8e|\xe2\x80[\x80-\x8d\xa8\xa9\xaf]|\xe2\x81[\x9f\xa0]
    |\xe3\x80\x80|\xef\xbb\xbf)"""
_WORD = re.compile(
    # As the engine reads: a word that it would see and we would not is a way around the fence. What is opened
    # and never closed goes to the end, so that no byte is read twice.
    rb"""(?P<skip>"""
    + _BLANK
    + rb"""++|--[^\n]*+|//[^\n]*+|\#[ !][^\n]*+|/\*.*?(?:\*/|\Z))
    |(?P<plain>(?:[0-9][0-9A-Za-z_.]*+|,[\s,]*+|'(?:[^'\\]++|\\.|'')*+(?:'|\\?\Z))++)
    |\xe2\x80\x98.*?(?:\xe2\x80\x99|\Z)
    |(?P<quoted>`(?:[^`\\]++|\\.|``)*+(?:`|\\?\Z)|"(?:[^"\\]++|\\.|"")*+(?:"|\\?\Z))
    |\xe2\x80\x9c(?P<curly>.*?)(?:\xe2\x80\x9d|\Z)
    |(?P<dollar>\$\w*\$)
    |(?P<name>[A-Za-z_$][A-Za-z0-9_$]*+)
    |(?P<open>[(\[{])
    |(?P<close>[)\]}])
    |.""",
    re.DOTALL | re.VERBOSE,
)
_NAME_BYTES = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_$")
#: More dollar quotes without an end than any statement has; each one is looked for to the end of the text.
_MOST_UNCLOSED = 16


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
class Word:
    """A name, or another piece with an empty name: where it stands, and within how many brackets."""

    name: bytes
    end: int
    start: int
    depth: int


def split_insert(text: bytes) -> InsertHead | None:
    """Find the end of an INSERT's head; None when it carries its rows as SQL, or is no INSERT at all."""
    words = words_of(text[:HEAD_BYTES])
    first = next(words, None)
    if first is None or first.name != b"insert":
        return None
    wants_format: Word | None = None
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
    words = list(words_of(head))
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
    for word in words_of(text):
        if after_format and word.name:
            found = text[word.start : word.end].decode("ascii", "replace")
        elif (word.name == b"settings" and found is not None) or text[word.start : word.end] == b";":
            # The clauses SETTINGS and FORMAT may stand in either order.
            break
        else:
            # Only the last clause counts: a column may be called "format" too.
            found = None
        after_format = word.depth == 0 and word.name == b"format"
    return found


def first_word(text: bytes) -> str:
    """The first keyword, in lower case; ``(`` for a statement in brackets, empty for no statement."""
    for word in words_of(text):
        return (word.name or text[word.start : word.end]).decode("ascii", "replace")
    return ""


def words_of(text: bytes) -> Iterator[Word]:
    """The words of a statement and whatever else stands between blanks and comments; names in lower case, unquoted.

    Raises:
        FrontError: too many dollar quotes without an end.
    """
    depth, position, unclosed = 0, 0, 0
    while (match := _WORD.match(text, position)) is not None:
        position, kind, name = match.end(), match.lastgroup, b""
        if kind == "skip":
            continue
        if kind == "close":
            depth -= 1
        elif kind == "name":
            name = match.group().lower()
        elif kind == "quoted":
            name = match.group()[1:-1].lower()
        elif kind == "curly":
            name = match["curly"].lower()
        elif kind == "dollar":
            closed = text.find(match.group(), position)
            if closed >= 0:
                position = closed + len(match.group())
            else:
                unclosed += 1
                # Without an end it is no quote but the beginning of a name.
                while position < len(text) and text[position] in _NAME_BYTES:
                    position += 1
            if unclosed > _MOST_UNCLOSED:
                raise refusal(Code.SYNTAX_ERROR, f"More than {_MOST_UNCLOSED} dollar quotes are not closed.")
        yield Word(name, position, match.start(), depth)
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
