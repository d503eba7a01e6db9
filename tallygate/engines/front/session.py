"""One statement on one fresh handle of the embedded engine, in the caller's thread.

A handle is never used again: after a query that failed half way, the engine puts its left-over output in front of the
next result of the same handle, and so one client's rows would stand in another's answer.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tallygate.engines.front.errors import Code, FrontError, from_engine, refusal
from tallygate.engines.front.fence import TABLE_FUNCTIONS, reaches_outside, refuses_setting, row_filters_reach_outside
from tallygate.engines.front.request import Statement
from tallygate.engines.front.spool import readable
from tallygate.engines.front.sql import first_word, output_format, split_settings
from tallygate.engines.front.yielding import Yielding

#: Formats whose blocks can be sent one after the other; others have a head or a foot around the whole result.
_STREAMABLE = frozenset(
    {"native", "tabseparated", "tsv", "csv", "rowbinary", "jsoneachrow", "tabseparatedraw", "tsvraw"}
)
_SELECTS = frozenset({"select", "with", "from", "("})
_CONTROLS = frozenset({"system", "kill", "set", "use"})
_NOT_STREAMED = "Streaming query is not supported"

#: A read that no client bounds ends after this; an insert or a merge may take as long as it takes.
_READ_TIMEOUT_S = 300


class Engine:
    """The engine in this process: one folder, any number of handles."""

    def __init__(self, folder: Path, *, max_memory_bytes: int) -> None:
        # Imported late: it takes a second, and reads TMPDIR when it is loaded.
        self._connect = importlib.import_module("chdb")._chdb.connect
        # The engine takes two merges for each core, which on a small machine leaves inserts and pages waiting for
        # seconds: here merges have half of the cores at most, and at least one.
        merges = max(1, (os.cpu_count() or 1) // 2)
        self._address = (
            f"{folder}?max_server_memory_usage={max_memory_bytes}"
            f"&background_pool_size={merges}&background_merges_mutations_concurrency_ratio=1"
        )
        # Kept open so that the engine outlives its requests. Never runs a client's statement.
        self._root = self._connect(self._address)
        self._yielding = Yielding()
        self.version, self.timezone = self._facts()
        self.table_functions = TABLE_FUNCTIONS | self._table_functions()

    def _facts(self) -> tuple[str, str]:
        version, timezone = self._root.query("SELECT version(), timezone()", "TSV").bytes().decode().strip().split("\t")
        return str(version), str(timezone)

    def _table_functions(self) -> frozenset[bytes]:
        names: bytes = self._root.query("SELECT lower(name) FROM system.table_functions", "TSV").bytes()
        return frozenset(names.split())

    def connect(self) -> Any:
        """A fresh handle, in a fifth of a millisecond."""
        return self._connect(self._address)

    def classify(self, text: bytes) -> tuple[str, int]:
        """Its class by the engine's parser (READ_ONLY, MUTATING, CONTROL, UNKNOWN), and how many statements."""
        handle = self.connect()
        try:
            facts = handle.classify_query(text)
        finally:
            handle.close()
        return str(facts["query_class"]).rpartition(".")[2].partition(":")[0], int(facts["statement_count"])

    def explain_syntax(self, text: bytes) -> FrontError:
        """The engine's words on a statement that does not parse; nothing of it is run."""
        handle = self.connect()
        shown = text.decode("utf-8", "replace").replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")
        try:
            handle.query("SELECT formatQuery({q:String})", "Null", params={"q": shown})
        except RuntimeError as error:
            return from_engine(error)
        finally:
            handle.close()
        return refusal(Code.SYNTAX_ERROR, "Syntax error.")

    def kill(self, marker: str) -> None:
        """Ask the engine to end the query that carries the marker; returns at once."""
        handle = self.connect()
        # A query that has just ended is no fault.
        with contextlib.suppress(RuntimeError):
            handle.query(f"KILL QUERY WHERE Settings['log_comment'] = '{marker}' ASYNC", "Null")
        handle.close()

    def close(self) -> None:
        """Close the engine; its folder is then free for another process."""
        self._yielding.close()
        self._root.close()


class Run:
    """One statement while it runs. Not thread-safe, but may move from thread to thread between calls."""

    def __init__(self, engine: Engine, statement: Statement, *, readonly: int, default_format: str) -> None:
        """Judge the statement; touches no data.

        Raises:
            FrontError: it does not parse, is more than one, or asks for what this front refuses.
        """
        self._engine = engine
        self._statement = statement
        self._default_format = default_format
        self._started = time.monotonic()
        self.kind = judge(engine, statement, readonly=readonly)
        self.is_insert = statement.rows is not None
        self.marker = statement.settings.get("log_comment") or f"front-{uuid.uuid4().hex}"
        self.cancellable = self.kind == "READ_ONLY" and "log_comment" not in statement.settings
        self.format_name = (output_format(statement.text) or default_format) if self.kind == "READ_ONLY" else None
        self._readonly = readonly
        self._handle: Any = None
        self._stream: Any = None
        self._summary: dict[str, str] = {}

    def start(self, enough_bytes: int) -> tuple[list[bytes], bool]:
        """Run it; returns the result's first pieces, and whether there is more to fetch.

        Raises:
            FrontError: what the engine says.
        """
        try:
            self._handle = self._engine.connect()
            self._prepare()
            if self._statement.rows is not None:
                return self._insert(self._statement.rows), False
            if self._may_stream() and self._open_stream():
                return self.fetch(enough_bytes)
            result = self._handle.query(self._statement.text, self._default_format, params=dict(self._statement.bound))
            self._count(read_rows=result.storage_rows_read(), result_rows=result.rows_read())
            return [result.bytes()], False
        except RuntimeError as error:
            raise from_engine(error) from error
        except OSError as error:
            raise refusal(Code.NOT_ENOUGH_SPACE, f"Cannot hold the rows of an INSERT: {error.strerror}.") from error

    def fetch(self, enough_bytes: int) -> tuple[list[bytes], bool]:
        """The next pieces, at least so many bytes unless the result ends; and whether there is more.

        Raises:
            FrontError: the query failed on its way.
        """
        pieces: list[bytes] = []
        size = 0
        try:
            while size < enough_bytes:
                piece = self._handle.streaming_fetch_result(self._stream).bytes()
                if not piece:
                    self._stream = None
                    return pieces, False
                pieces.append(piece)
                size += len(piece)
        except RuntimeError as error:
            raise from_engine(error) from error
        return pieces, True

    def summary(self) -> str:
        """The X-ClickHouse-Summary header: counts so far, as JSON of strings."""
        elapsed_ns = int((time.monotonic() - self._started) * 1e9)
        return json.dumps({**self._summary, "elapsed_ns": str(elapsed_ns)})

    def close(self) -> None:
        """Throw the handle away; safe to call twice."""
        handle, stream, self._handle, self._stream = self._handle, self._stream, None, None
        if handle is None:
            return
        # Whatever the engine has left to say about this query, nobody listens any more.
        with contextlib.suppress(RuntimeError):
            if stream is not None:
                handle.streaming_cancel_query(stream)
        handle.close()

    def _prepare(self) -> None:
        statement = self._statement
        settings = {name: value for name, value in statement.settings.items() if name != "readonly"}
        if self.kind == "READ_ONLY":
            settings.setdefault("max_execution_time", str(_READ_TIMEOUT_S))
            settings.setdefault("log_comment", self.marker)
        else:
            # One INSERT is one part, stored when it is answered.
            settings.setdefault("async_insert", "0")
        if self.is_insert:
            settings.update({f"param_{name}": value for name, value in statement.bound.items()})
        self._handle.query(f"USE {_quote_name(statement.database)}", "Null")
        self._handle.query(_set_clause(settings), "Null")
        # Last: under it nothing can be set any more.
        asked = int(statement.settings.get("readonly", "0"))
        # 1 is the strictest of the three.
        readonly = 1 if 1 in {self._readonly, asked} else max(self._readonly, asked)
        if readonly:
            self._handle.query(f"SET readonly = {readonly}", "Null")

    def _insert(self, rows: list[bytes]) -> list[bytes]:
        head, settings = split_settings(self._statement.insert_head)
        with readable(rows) as path:
            source = f" FROM INFILE '{path}' COMPRESSION 'none' ".encode()
            wanted = f" FORMAT {self._statement.format_name}".encode()
            done = self._handle.query(head + source + settings + wanted, "Null")
        written = done.rows_written()
        self._count(written_rows=written, read_rows=written)
        return []

    def _may_stream(self) -> bool:
        name = self.format_name
        return name is not None and name.lower() in _STREAMABLE and first_word(self._statement.text) in _SELECTS

    def _open_stream(self) -> bool:
        bound = dict(self._statement.bound)
        try:
            self._stream = self._handle.send_query(self._statement.text, self._default_format, params=bound)
        except RuntimeError as error:
            if _NOT_STREAMED in str(error):
                return False
            raise
        return True

    def _count(self, **counts: int) -> None:
        self._summary.update({name: str(value) for name, value in counts.items()})


def judge(engine: Engine, statement: Statement, *, readonly: int) -> str:
    """The statement's class, if this front runs it at all.

    Raises:
        FrontError: see the messages.
    """
    text = statement.text
    for name, value in statement.settings.items():
        if name == "additional_table_filters":
            hidden = row_filters_reach_outside(value, table_functions=engine.table_functions)
            if hidden is not None:
                raise _outside(hidden)
        elif refuses_setting(name.encode()):
            raise _outside(f"setting {name}")
    kind, count = engine.classify(text)
    if count > 1:
        raise refusal(Code.SYNTAX_ERROR, "Syntax error (Multi-statements are not allowed).")
    if kind == "UNKNOWN":
        raise engine.explain_syntax(text)
    word = reaches_outside(text, table_functions=engine.table_functions, bound=statement.bound)
    if word is not None:
        raise _outside(word)
    if kind == "CONTROL" and first_word(text) not in _CONTROLS:
        raise refusal(Code.SUPPORT_IS_DISABLED, f"{first_word(text).upper()} of this form is disabled over HTTP.")
    if readonly and kind != "READ_ONLY":
        hint = " Method GET implies readonly; use POST to change data." if readonly == 2 else ""
        raise refusal(Code.READONLY, f"Cannot execute query in readonly mode.{hint}")
    return kind


def _outside(word: str) -> FrontError:
    return refusal(
        Code.SUPPORT_IS_DISABLED,
        f"{word} is disabled: it could reach files, programs or hosts beyond this server's tables.",
    )


def _quote_name(name: str) -> str:
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def _set_clause(settings: Mapping[str, str]) -> str:
    escaped = {name: value.replace("\\", "\\\\").replace("'", "\\'") for name, value in settings.items()}
    return "SET " + ", ".join(f"{name} = '{value}'" for name, value in escaped.items())
