"""From URL, form and body to one statement."""

from __future__ import annotations

import pytest

from tallygate.engines.front.errors import Code, FrontError, from_engine
from tallygate.engines.front.request import build_statement, read_url
from tallygate.engines.front.users import User, UserBook

LIMIT = 1 << 20


def _statement(query_string: bytes, body: list[bytes]) -> object:
    return build_statement(read_url(query_string), body, database="m", limit_bytes=LIMIT)


def test_parameters_settings_and_transport_are_told_apart() -> None:
    """A transport parameter given to the engine as a setting would be refused as unknown."""
    url = read_url(b"database=m&max_threads=2&param_k=a%27b&wait_end_of_query=1&session_id=x&query=SELECT+1")
    statement = build_statement(url, [], database="m", limit_bytes=LIMIT)
    assert statement.text == b"SELECT 1"
    assert statement.settings == {"max_threads": "2"}
    assert statement.bound == {"k": "a'b"}
    assert url.flag("wait_end_of_query")


def test_query_in_the_url_and_rows_in_the_body_are_one_insert() -> None:
    """Clients that stream put the statement into the URL; the body is then rows from its first byte."""
    statement = build_statement(
        read_url(b"query=INSERT+INTO+t+FORMAT+TSV%0A"), [b"\n1\tx", b"\n2\ty\n"], database="m", limit_bytes=LIMIT
    )
    assert statement.insert_head.strip() == b"INSERT INTO t"
    assert statement.rows is not None
    assert b"".join(statement.rows) == b"\n1\tx\n2\ty\n"


def test_large_rows_are_passed_on_without_a_copy() -> None:
    """A block of a million rows is tens of megabytes."""
    pieces = [b"INSERT INTO t FORMAT RowBinary\n", b"x" * 300_000, b"y" * 300_000]
    statement = build_statement(read_url(b""), pieces, database="m", limit_bytes=LIMIT)
    assert statement.rows is not None
    assert statement.rows[-1] is pieces[-1]


@pytest.mark.parametrize(
    ("query_string", "body", "code"),
    [
        (b"", [], Code.SYNTAX_ERROR),
        (b"", [b"  \n"], Code.SYNTAX_ERROR),
        (b"decompress=1", [b"SELECT 1"], Code.NOT_IMPLEMENTED),
        (b"max_threads%3D1%2Cx=2", [b"SELECT 1"], Code.BAD_ARGUMENTS),
        (b"param_a=%ff", [b"SELECT 1"], Code.BAD_ARGUMENTS),
        (b"readonly=maybe", [b"SELECT 1"], Code.BAD_ARGUMENTS),
    ],
)
def test_bad_requests_are_refused_with_a_code(query_string: bytes, body: list[bytes], code: Code) -> None:
    """A setting's name is put into SQL, so it must be a name."""
    with pytest.raises(FrontError) as refused:
        _statement(query_string, body)
    assert refused.value.code == code
    assert refused.value.text.startswith(f"Code: {int(code)}. DB::Exception: ")


@pytest.mark.parametrize(
    ("query_string", "body"),
    [
        (b"", [b"SELECT '", b"x" * LIMIT, b"'"]),
        (b"", [b"INSERT INTO t VALUES ", b"(1)," * LIMIT]),
        (b"query=SELECT+" + b"1" * LIMIT, []),
        (b"query=INSERT+INTO+t+FORMAT+TSV+" + b"1" * LIMIT, [b"2"]),
    ],
)
def test_a_statement_that_would_take_seconds_to_read_is_refused(query_string: bytes, body: list[bytes]) -> None:
    """The rows of an INSERT … FORMAT may be large, because nothing has to read them; SQL may not."""
    with pytest.raises(
        FrontError, match=r"allowed: 1,048,576 \(--max-statement-kb\), and any number of rows"
    ) as refused:
        _statement(query_string, body)
    assert refused.value.status == 413


def test_form_fields_count_as_parameters() -> None:
    """Clients send long statements and parameters as a form."""
    url = read_url(b"database=m", {"query": b"SELECT {a:String}", "param_a": "é".encode()})
    assert url.query == b"SELECT {a:String}"
    assert url.values["param_a"] == "é"


def test_engine_errors_keep_their_code_and_lose_their_prefix() -> None:
    """Clients decide by the code whether to try again."""
    error = from_engine(
        RuntimeError("Query failed: Code: 60. DB::Exception: Table m.x does not exist. (UNKNOWN_TABLE)")
    )
    assert (error.code, error.status) == (60, 404)
    assert error.text.startswith("Code: 60.")
    assert from_engine(RuntimeError("boom")).code == Code.UNKNOWN_EXCEPTION


def test_no_error_has_a_status_that_clients_retry_by_themselves() -> None:
    """clickhouse-connect sends a statement again on 429, 503 and 504: an insert would be written twice."""
    assert not {FrontError(code, "").status for code in range(1_200)} & {429, 503, 504}


def test_users_are_told_by_basic_auth_header_or_url() -> None:
    """Every client has its own way of sending a name."""
    book = UserBook([User.with_password("ops", "pä:ss"), User.with_password("page", "p", readonly=True)])
    assert book.authenticate({"authorization": "Basic b3BzOnDDpDpzcw=="}, {}).name == "ops"
    assert book.authenticate({"x-clickhouse-user": "page", "x-clickhouse-key": "p"}, {}).readonly
    assert book.authenticate({}, {"user": "page", "password": "p"}).name == "page"


@pytest.mark.parametrize(
    ("headers", "parameters"),
    [
        ({}, {}),
        ({"authorization": "Basic !!!"}, {}),
        ({"authorization": "Bearer x"}, {}),
        ({"x-clickhouse-user": "ops", "x-clickhouse-key": "wrong"}, {}),
        ({"x-clickhouse-user": "nobody", "x-clickhouse-key": "pw"}, {}),
    ],
)
def test_wrong_credentials_are_refused_alike(headers: dict[str, str], parameters: dict[str, str]) -> None:
    """Which names exist is nobody's business."""
    with pytest.raises(FrontError) as refused:
        UserBook([User.with_password("ops", "pw")]).authenticate(headers, parameters)
    assert refused.value.code == Code.AUTHENTICATION_FAILED
    assert "pw" not in refused.value.text
