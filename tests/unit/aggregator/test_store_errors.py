"""What the client raises, as one of two errors: come back later, or correct the statement."""

from __future__ import annotations

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError, OperationalError

from aggregator.store import StoreRefused, StoreUnavailable
from aggregator.store_clickhouse import classify

AT = "http://127.0.0.1:8123/tallygate"


@pytest.mark.parametrize("code", [243, 241, 252, 159, 202, 242, 319, 75])
def test_classify_takes_a_busy_or_full_server_for_passing(code: int) -> None:
    """These rows must be written again; giving up on them would lose them."""
    found = classify(AT, DatabaseError("Code: x. DB::Exception: no", code=code))
    assert isinstance(found, StoreUnavailable)
    assert AT in str(found)


@pytest.mark.parametrize("text", ["write failed, errno: 28, strerror: No space left on device", "Disk quota exceeded"])
@pytest.mark.parametrize("code", [None, 1001, 1002])
def test_classify_knows_a_full_disk_by_its_text(text: str, code: int | None) -> None:
    """The engine reports it under several codes, by where it met it."""
    found = classify(AT, DatabaseError(text, code=code))
    assert isinstance(found, StoreUnavailable)
    assert "is full" in str(found)


@pytest.mark.parametrize(("code", "hint"), [(60, "migrate"), (81, "migrate"), (516, "password"), (62, "")])
def test_classify_takes_a_wrong_statement_for_refused(code: int, hint: str) -> None:
    """Trying again for ever would look like an outage and hide the fault."""
    found = classify(AT, DatabaseError("Code: x. DB::Exception: no", code=code))
    assert isinstance(found, StoreRefused)
    assert hint in str(found)


def test_classify_names_the_innermost_cause_of_a_broken_connection() -> None:
    """'Error executing HTTP request' helps nobody."""
    error = OperationalError("Error executing HTTP request")
    error.__cause__ = ConnectionRefusedError(111, "Connection refused")
    found = classify(AT, error)
    assert isinstance(found, StoreUnavailable)
    assert f"ClickHouse at {AT} does not answer: ConnectionRefusedError: [Errno 111] Connection refused" == str(found)


def test_classify_keeps_a_long_text_short() -> None:
    """A failed insert's text can hold the rows."""
    assert len(str(classify(AT, DatabaseError("x" * 100_000, code=62)))) < 1_000
