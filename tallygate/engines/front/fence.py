"""Which statements could reach files, programs or other hosts, by their words; the engine itself has no such fence.

Allows what is known to stay inside and refuses the rest: an engine of tomorrow may not bring a way out along. Guards
against mistakes and stray requests of those who may ask at all; it is no sandbox for hostile SQL. Never runs a
statement.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache

from tallygate.engines.front.sql import Word, first_word, words_of

#: Table functions that make rows up or read tables of this server.
INSIDE_FUNCTIONS = frozenset(
    b"""dictionary format generate_series generaterandom generateseries input merge null numbers numbers_mt primes
    sqlstandardvalues values view zeros zeros_mt""".split()
)
#: Engines of tables and databases that keep what they hold in the engine's own folder.
INSIDE_ENGINES = frozenset(
    b"""aggregatingmergetree coalescingmergetree collapsingmergetree graphitemergetree mergetree replacingmergetree
    summingmergetree versionedcollapsingmergetree log stripelog tinylog join set memory null view materializedview
    generaterandom atomic""".split()
)
#: Sources of dictionaries; every other one but ``null`` reaches out, or can.
INSIDE_SOURCES = frozenset({b"null"})

#: Every other table function by its name in lower case; the engine adds those that it lists.
TABLE_FUNCTIONS = frozenset(
    b"""arrowflight arrowstream azureblobstorage azureblobstoragecluster bigquery cluster clusterallreplicas
    cosn deltalake deltalakeazure deltalakeazurecluster deltalakecluster deltalakelocal deltalakes3
    deltalakes3cluster eval executable file filecluster filesystem fuzzjson fuzzquery gcs hdfs hdfscluster
    hudi hudicluster iceberg icebergazure icebergazurecluster icebergcluster iceberghdfs iceberghdfscluster
    iceberglocal iceberglocalcluster icebergs3 icebergs3cluster jdbc loop mergetreeanalyzeindexes
    mergetreeanalyzeindexesuuid mergetreecodecblockcounts mergetreeindex mergetreeprojection
    mergetreetextindex mongodb mysql odbc oss paimon paimonazure paimonazurecluster paimoncluster paimonhdfs
    paimonhdfscluster paimonlocal paimons3 paimons3cluster postgresql prometheusquery prometheusqueryrange
    python redis remote remotesecure s3 s3cluster sqlite timeseriesdata timeseriesmetricfamilies
    timeseriesmetrics timeseriessamples timeseriesselector timeseriestags url urlcluster viewexplain
    viewifpermitted ytsaurus""".split()
)
#: What else is followed by a bracket: functions, disks, layouts, places of backups and sources of dictionaries.
_OTHERS = re.compile(
    rb"(?:ai(?:filter|classify|embed|generate|extract|redact|translate|similarity)|addressto\w+|catboostevaluate"
    rb"|hascolumnintable|disk|(?:complex_key_)?ssd_cache|executablepool|http|clickhouse|cassandra|yamlregexptree)\Z"
)
#: Settings that open what is closed, carry SQL or the names of files, or change the language.
_SWITCH = re.compile(
    rb"(?:allow_(?:experimental|introspection|fuzz)_|ai_|ast_fuzzer_|format_schema|format_template_|parallel_replicas_"
    rb"|param_|promql_)|enable_(?:\w*dialect|debug_queries)\Z"
)
_VALUE = re.compile(
    rb"(?:\w*dialect|output_format_schema|google_protos_path|additional_table_filters|additional_result_filter|select"
    rb"|order|sort|filter|implicit_table_at_top_level|url_base|s3_base|input_format_record_errors_file_path"
    rb"|rename_files_after_processing|cluster_for_parallel_replicas|default_database_engine"
    rb"|cloud_mode_database_engine)\Z"
)
#: First words of statements that make no table, so that ``engine`` is a column there.
_MAKE_NOTHING = frozenset({"select", "with", "from", "(", "show", "insert", "describe", "desc", "explain"})
#: After ``ENGINE`` without ``=``, these go on with a statement that only has a column of that name.
_NO_ENGINE = frozenset(
    b"""and as asc between collate desc else end except format from global group having ilike in intersect is like limit
    not offset or order prewhere qualify settings then union when where""".split()
)
_SETTINGS = frozenset({b"settings", b"setting"})
_TABLES_FOLLOW = frozenset({b"from", b"join"})
#: Only words that the engine takes for no alias of a table; so ``FROM t SELECT 'a/b'`` is refused.
_TABLES_END = frozenset(
    b"""where prewhere on using group order having limit offset qualify window settings format union except intersect
    sample like ilike""".split()
)
#: What follows these is a name, whatever word it is.
_NAME_FOLLOWS = frozenset({b"as", b"from", b"join", b"."})
#: How many texts are remembered, and how long one may be: 16 MB at most.
_TEXTS_KEPT, _MOST_KEPT = 1_024, 16_384
#: The same of filters of rows, each of which names a caller: 1 MB at most.
_FILTERS_KEPT, _LONGEST_FILTER = 256, 4_096
#: Of `additional_table_filters`: a string without any escape but those of quotes and backslashes, and a map of such.
_PLAIN = rb"'(?:[^'\\]|\\['\\])*'"
_PAIR = rb"\s*" + _PLAIN + rb"\s*:\s*" + _PLAIN + rb"\s*"
_ROW_FILTERS = re.compile(rb"\{(?:" + _PAIR + rb"(?:," + _PAIR + rb")*)?\}\Z")
_QUOTED = re.compile(_PLAIN)
_ESCAPED = re.compile(rb"\\['\\]")


def refuses_setting(name: bytes) -> bool:
    """Whether no statement may have this setting: it could open a way out, or hide one from the fence."""
    return (_SWITCH.match(name.lower()) or _VALUE.match(name.lower())) is not None


def reaches_outside(
    text: bytes, *, table_functions: Collection[bytes] = TABLE_FUNCTIONS, bound: Mapping[str, str] | None = None
) -> str | None:
    """The words by which the statement could reach a file, a program or another host; None when it cannot.

    Args:
        text: the statement.
        table_functions: every name, in lower case, that the engine takes for a table function.
        bound: values of ``{name:Type}`` places; those of type Identifier are names of tables too.

    Raises:
        FrontError: the statement opens more dollar quotes than it closes, too many to look for their ends.
    """
    known = frozenset(table_functions)
    word, names = _judged(text, known) if len(text) <= _MOST_KEPT else _read(text, known)
    return _bound_path(names, bound or {}) if word is None else word


@lru_cache(maxsize=_TEXTS_KEPT)
def _judged(text: bytes, table_functions: frozenset[bytes]) -> tuple[str | None, frozenset[bytes]]:
    """See `_read`. Pages ask the same texts again and again, and reading one takes a millisecond or two.

    No value is in it: whoever asks for a thousand names would push the texts out, and keep the names.
    """
    return _read(text, table_functions)


def _read(text: bytes, table_functions: frozenset[bytes]) -> tuple[str | None, frozenset[bytes]]:
    """The words by which a text reaches outside, and the places (in lower case) whose values are names of tables."""
    first = first_word(text)
    tables, makes = _Tables(first), first not in _MAKE_NOTHING
    in_settings = first == "set"
    names = set[bytes]()
    before: list[bytes] = [b"", b"", b"", b""]
    for word in words_of(text):
        symbol = word.name or text[word.start : word.end]
        found = (
            _call(symbol, before, table_functions)
            or _clause(symbol, before)
            or (_engine(word, before) if makes else None)
            or tables.path(word, symbol, before[-1])
            or (_setting(symbol, before) if in_settings else None)
        )
        if found is not None:
            return found, frozenset()
        if symbol == b"identifier" and before[-1] == b":" and before[-3] == b"{":
            names.add(before[-2])
        in_settings = in_settings or word.name in _SETTINGS
        before = [*before[1:], symbol]
    return None, frozenset(names)


def row_filters_reach_outside(value: str, *, table_functions: Collection[bytes] = TABLE_FUNCTIONS) -> str | None:
    """The same of ``additional_table_filters``: a map of table names to conditions, each read as the SQL that it is.

    Anything but a plain map of plain strings is refused, because it could hide what it says.
    """
    known = frozenset(table_functions)
    return _filtered(value, known) if len(value) <= _LONGEST_FILTER else _filtered.__wrapped__(value, known)


@lru_cache(maxsize=_FILTERS_KEPT)
def _filtered(value: str, table_functions: frozenset[bytes]) -> str | None:
    """See `row_filters_reach_outside`. One page asks with one filter again and again, the next with another."""
    text = value.encode()
    if _ROW_FILTERS.match(text) is None:
        return "setting additional_table_filters"
    # Mostly one condition for all tables.
    for quoted in dict.fromkeys(_QUOTED.findall(text)):
        said = _ESCAPED.sub(lambda found: found[0][1:], quoted[1:-1])
        word, _ = _read(b"SELECT " + said, table_functions)
        if word is not None:
            return f"setting additional_table_filters with {word}"
    return None


def _setting(symbol: bytes, before: list[bytes]) -> str | None:
    """A switch may stand without a value; the other names are words of SQL too and count only before ``=``."""
    if _SWITCH.match(symbol) and _lists_settings(before[-1]):
        return f"setting {_shown(symbol)}"
    if symbol == b"=" and _VALUE.match(before[-1]) and _lists_settings(before[-2]):
        return f"setting {_shown(before[-1])}"
    return None


def _lists_settings(previous: bytes) -> bool:
    return previous in _SETTINGS or previous == b"set" or previous.rstrip().endswith(b",")


def _call(symbol: bytes, before: list[bytes], table_functions: Collection[bytes]) -> str | None:
    name = before[-1]
    if symbol != b"(" or name in INSIDE_FUNCTIONS:
        return None
    if name in table_functions or name in TABLE_FUNCTIONS or _OTHERS.match(name):
        return f"{_shown(name)}("
    return None


def _clause(symbol: bytes, before: list[bytes]) -> str | None:
    if symbol in {b"infile", b"outfile"} and before[-1] in {b"from", b"into"}:
        return f"{before[-1].decode()} {symbol.decode()}".upper()
    if before[-2:] == [b"source", b"("] and symbol not in INSIDE_SOURCES:
        return f"SOURCE({_shown(symbol)}"
    return None


def _engine(word: Word, before: list[bytes]) -> str | None:
    named = before[-2:] == [b"engine", b"="]
    # The sign may be left out.
    unsigned = before[-1] == b"engine" and word.depth == 0 and word.name not in _NO_ENGINE
    if word.name and word.name not in INSIDE_ENGINES and (named or unsigned):
        return f"ENGINE {_shown(word.name)}"
    return None


def _bound_path(names: Collection[bytes], bound: Mapping[str, str]) -> str | None:
    for name, value in bound.items() if names else ():
        # The fence reads names in lower case.
        if name.lower().encode() in names and _is_path(value.encode()):
            return f"Identifier {_shown(value.encode())}"
    return None


class _Tables:
    """Finds the names that are paths: the engine takes ``default.`/etc/hostname` `` for a table of that file."""

    def __init__(self, first: str) -> None:
        self._depths = {0} if first in {"desc", "describe"} else set[int]()

    def path(self, word: Word, symbol: bytes, previous: bytes) -> str | None:
        if word.name:
            if _is_path(word.name):
                return f"name {_shown(word.name)}"
            if symbol in _TABLES_FOLLOW:
                self._depths.add(word.depth)
            elif symbol in _TABLES_END and self._is_keyword(word, previous):
                self._depths.discard(word.depth)
        elif symbol in {b")", b"]", b"}"}:
            self._depths.discard(word.depth + 1)
        elif word.depth in self._depths and len(symbol) > 1 and _is_path(symbol):
            # A string in place of a table's name.
            return f"table {_shown(symbol)}"
        return None

    @staticmethod
    def _is_keyword(word: Word, previous: bytes) -> bool:
        is_name = previous in _NAME_FOLLOWS or previous.rstrip().endswith(b",")
        # A quoted word is longer than its name.
        return not is_name and word.end - word.start == len(word.name)


def _is_path(name: bytes) -> bool:
    # An escape could spell anything.
    return b"/" in name or b"\\" in name


def _shown(name: bytes) -> str:
    return name[:80].decode(errors="replace")
