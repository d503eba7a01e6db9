"""What a request may cost the embedded ClickHouse before it is refused, and what it may cost the others."""

from __future__ import annotations

import gzip
import http.client
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode

import cramjam
import pytest

from tallygate.engines.clickhouse import ClickHouse, start_clickhouse
from tallygate.engines.front.users import User

_BODY_MB = 64
_BOMB_MB = 4_096
_OPS = {"X-ClickHouse-User": "ops", "X-ClickHouse-Key": "pw"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouse]:
    """A server with a password and small limits."""
    server = start_clickhouse(
        tmp_path_factory.mktemp("bounds"), users=[User.with_password("ops", "pw")], max_body_mb=_BODY_MB
    )
    yield server
    server.stop()


def _post(
    server: ClickHouse, body: bytes, headers: Mapping[str, str], parameters: Mapping[str, str] | None = None
) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.request("POST", "/?" + urlencode(parameters or {}), body, dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def _peak_mb(server: ClickHouse) -> int:
    lines = Path(f"/proc/{server.pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) // 1_024


def _bomb() -> bytes:
    return bytes(cramjam.zstd.compress(bytes(1 << 24))) * (_BOMB_MB // 16)


@pytest.mark.parametrize("headers", [{}, {**_OPS, "X-ClickHouse-Key": "wrong"}], ids=["nobody", "wrong password"])
def test_who_may_not_ask_costs_no_decompression(guarded: ClickHouse, headers: dict[str, str]) -> None:
    """Anyone who reaches the port could otherwise fill the memory of the machine."""
    before_mb = _peak_mb(guarded)
    status, text = _post(guarded, _bomb(), {**headers, "Content-Encoding": "zstd"})
    assert status == 403
    assert "Authentication failed" in text
    assert _peak_mb(guarded) - before_mb < 16


def test_a_body_that_unfolds_beyond_the_limit_is_refused_with_413(guarded: ClickHouse) -> None:
    """Four gigabytes of zeros are half a megabyte on the wire; memory stays within the limit."""
    before_mb = _peak_mb(guarded)
    status, text = _post(guarded, _bomb(), {**_OPS, "Content-Encoding": "zstd"})
    assert status == 413
    assert "decompressed, is larger than 67,108,864 bytes" in text
    assert _peak_mb(guarded) - before_mb < 3 * _BODY_MB
    assert _post(guarded, b"SELECT 1", _OPS) == (200, "1\n")


def test_a_plain_body_and_a_form_have_the_same_limit(guarded: ClickHouse) -> None:
    """A form of ten thousand large fields is a large body too."""
    large = b"x" * (_BODY_MB + 1 << 20)
    status, text = _post(guarded, large, _OPS)
    assert (status, "is larger than 67,108,864 bytes" in text) == (413, True)
    field = b'--b\r\nContent-Disposition: form-data; name="param_%d"\r\n\r\n' + b"x" * (30 << 20) + b"\r\n"
    form = b"".join(field % number for number in range(3)) + b"--b--\r\n"
    status, text = _post(guarded, form, {**_OPS, "Content-Type": "multipart/form-data; boundary=b"})
    assert (status, "is larger than 67,108,864 bytes" in text) == (413, True)


def test_a_form_names_no_user(guarded: ClickHouse) -> None:
    """Who asks is known before the body is read."""
    form = b"".join(
        b'--b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % pair
        for pair in ((b"user", b"ops"), (b"password", b"pw"), (b"query", b"SELECT 1"))
    )
    status, _ = _post(guarded, form + b"--b--\r\n", {"Content-Type": "multipart/form-data; boundary=b"})
    assert status == 403


def test_compressed_rows_within_the_limit_are_stored(guarded: ClickHouse) -> None:
    """The limit is for bombs, not for the recorder."""
    rows = b"".join(b"%d\n" % number for number in range(100_000))
    assert _post(guarded, b"CREATE TABLE n (n UInt64) ENGINE = Memory", _OPS)[0] == 200
    packed = {**_OPS, "Content-Encoding": "gzip"}
    assert _post(guarded, gzip.compress(rows), packed, {"query": "INSERT INTO n FORMAT TSV"}) == (200, "")
    assert _post(guarded, b"SELECT sum(n) FROM n", _OPS) == (200, "4999950000\n")


@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.example:18123"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}],
    ids=["rebinding", "no-cors", "origin"],
)
def test_web_pages_are_refused_even_with_a_password(guarded: ClickHouse, headers: dict[str, str]) -> None:
    """A browser adds what it has stored for this address by itself."""
    assert _post(guarded, b"SELECT 1", {**_OPS, **headers})[0] == 403


def test_a_long_statement_holds_up_nobody_else(guarded: ClickHouse) -> None:
    """A megabyte of SQL takes seconds to read; a page asks meanwhile."""
    slow = b"SELECT " + b"(1)+" * 80_000 + b"1"
    with ThreadPoolExecutor(1) as pool:
        began_s = time.monotonic()
        reading = pool.submit(_post, guarded, slow, _OPS)
        waits_s: list[float] = []
        while not reading.done():
            asked_s = time.monotonic()
            assert _post(guarded, b"SELECT 1", _OPS) == (200, "1\n")
            waits_s.append(time.monotonic() - asked_s)
        took_s = time.monotonic() - began_s
    assert len(waits_s) > 3
    assert max(waits_s) < max(0.5, took_s / 3)
    status, text = _post(guarded, slow * 4, _OPS)
    assert (status, "The statement is 1,280,0" in text) == (413, True)
