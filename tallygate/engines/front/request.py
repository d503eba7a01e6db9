"""From an HTTP request to one statement: text, rows, bound parameters, settings, database. Runs nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes

from tallygate.engines.front.errors import Code, FrontError, refusal
from tallygate.engines.front.sql import HEAD_BYTES, InsertHead, split_insert

_SETTING_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

#: What the HTTP interface itself takes; everything else in the URL is a setting of the statement.
TRANSPORT = frozenset(
    {
        "add_http_cors_header",
        "buffer_size",
        "cancel_http_readonly_queries_on_client_close",
        "client_protocol_version",
        "compress",
        "database",
        "decompress",
        "default_format",
        "enable_http_compression",
        "http_headers_progress_interval_ms",
        "http_zlib_compression_level",
        "password",
        "query",
        "query_id",
        "quota_key",
        "role",
        "send_progress_in_http_headers",
        "session_check",
        "session_id",
        "session_timeout",
        "stacktrace",
        "user",
        "wait_end_of_query",
    }
)


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement to run.

    Attributes:
        text: the SQL, without an INSERT's rows.
        rows: an INSERT's rows, in pieces; None for any other statement.
        insert_head: for an INSERT with rows, the text without its FORMAT clause.
        format_name: the rows' format; empty without rows.
        bound: values of ``{name:Type}`` places, as the wire has them.
        settings: for this statement only.
        database: where unqualified names resolve.
    """

    text: bytes
    rows: list[bytes] | None = None
    insert_head: bytes = b""
    format_name: str = ""
    bound: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    database: str = "default"


@dataclass(frozen=True, slots=True)
class Url:
    """The decoded URL parameters (and form fields)."""

    query: bytes
    values: Mapping[str, str]

    def flag(self, name: str) -> bool:
        """A boolean parameter; absent is false."""
        return self.values.get(name, "0").lower() in {"1", "true"}


def read_url(query_string: bytes, form: Mapping[str, bytes] | None = None) -> Url:
    """Decode the URL's parameters; a form's fields count as parameters too.

    Raises:
        FrontError: bytes that are not UTF-8 where text is needed.
    """
    pairs: dict[str, bytes] = {}
    for pair in filter(None, query_string.split(b"&")):
        name, _, value = pair.replace(b"+", b" ").partition(b"=")
        pairs[unquote_to_bytes(name).decode("utf-8", "replace")] = unquote_to_bytes(value)
    pairs |= form or {}
    query = pairs.pop("query", b"")
    try:
        return Url(query, {name: value.decode() for name, value in pairs.items()})
    except UnicodeDecodeError as error:
        raise refusal(Code.BAD_ARGUMENTS, f"A URL parameter is not valid UTF-8: {error}.") from error


def build_statement(url: Url, body: list[bytes], *, database: str, limit_bytes: int) -> Statement:
    """Put the statement together; ``query`` of the URL comes before the body.

    Args:
        url: the request's parameters.
        body: the pieces of its body.
        database: where unqualified names resolve.
        limit_bytes: the longest statement, without the rows of an INSERT … FORMAT.

    Raises:
        FrontError: no statement or too long a one, a bad setting name, or a feature that this front does not have.
    """
    if url.flag("decompress") or url.flag("compress"):
        raise refusal(
            Code.NOT_IMPLEMENTED, "ClickHouse's own block compression is not supported; use Content-Encoding."
        )
    text, rest = _head(url.query, body)
    if len(url.query) > limit_bytes:
        raise _too_long(len(url.query), limit_bytes)
    insert = split_insert(text)
    bound = {name[6:]: value for name, value in url.values.items() if name.startswith("param_")}
    settings = _settings(url.values)
    if insert is not None:
        rows = _rows(insert, text, rest)
        return Statement(text[: insert.data_offset], rows, insert.head, insert.format_name, bound, settings, database)
    size = len(text) + sum(map(len, rest))
    if size > limit_bytes:
        raise _too_long(size, limit_bytes)
    whole = b"".join([text, *rest])
    if not whole.strip():
        raise refusal(Code.SYNTAX_ERROR, "Empty query")
    return Statement(whole, bound=bound, settings=settings, database=database)


def _too_long(size: int, limit_bytes: int) -> FrontError:
    return refusal(
        Code.TOO_MANY_ROWS_OR_BYTES,
        f"The statement is {size:,} bytes long; allowed: {limit_bytes:,} (--max-statement-kb), and any number of rows "
        "after the head of an INSERT … FORMAT.",
    )


def _head(query: bytes, body: list[bytes]) -> tuple[bytes, list[bytes]]:
    """Enough of the beginning to find an INSERT's head in, and the untouched pieces behind it."""
    # A newline ends the FORMAT clause; one more would already be data.
    pieces = [query.rstrip(b"\r\n"), b"\n"] if query and any(body) else [query]
    size, taken = len(query), 0
    while taken < len(body) and size < HEAD_BYTES:
        pieces.append(body[taken])
        size += len(body[taken])
        taken += 1
    return b"".join(pieces), body[taken:]


def _rows(insert: InsertHead, text: bytes, rest: list[bytes]) -> list[bytes]:
    first = text[insert.data_offset :]
    return [first, *rest] if first else rest


def _settings(values: Mapping[str, str]) -> dict[str, str]:
    settings = {
        name: value for name, value in values.items() if name not in TRANSPORT and not name.startswith("param_")
    }
    for name in settings:
        if not _SETTING_NAME.match(name):
            raise refusal(Code.BAD_ARGUMENTS, f"URL parameter {name!r} is not the name of a setting.")
    if settings.get("readonly", "0") not in {"0", "1", "2"}:
        raise refusal(Code.BAD_ARGUMENTS, f"readonly is {settings['readonly']!r}; allowed: 0, 1 or 2.")
    return settings
