"""The aggregator's settings: defaults, and all faults at once."""

from __future__ import annotations

import pytest

from aggregator.config import AggregatorConfig, ClickHouseDsn, parse_dsn
from enforcer.errors import ConfigError


def test_from_env_defaults_to_what_tallygate_up_serves() -> None:
    """Without any setting the recorder must find the engines of the same machine."""
    config = AggregatorConfig.from_env({})
    assert ("127.0.0.1:19092", 4) == (config.kafka, config.partitions)
    assert ClickHouseDsn("127.0.0.1", 18123, "tallygate") == config.clickhouse


def test_from_env_treats_an_empty_setting_as_absent() -> None:
    """Compose files and shells pass empty strings for what is not set."""
    assert AggregatorConfig.from_env({}) == AggregatorConfig.from_env(
        {"TALLYGATE_KAFKA": "", "TALLYGATE_FLUSH_MS": " "}
    )


def test_from_env_reports_every_fault_at_once() -> None:
    """One fault a start is one start too many."""
    with pytest.raises(ConfigError) as caught:
        AggregatorConfig.from_env(
            {
                "TALLYGATE_KAFKA": "kafka",
                "TALLYGATE_CLICKHOUSE": "chdb://x",
                "TALLYGATE_PARTITIONS": "0",
                "TALLYGATE_FLUSH_MS": "soon",
                "TALLYGATE_FLUSH_DECISIONS": "2000000",
                "TALLYGATE_FLUSH_BYTES": "64",
                "TALLYGATE_RECORDER_GROUP": "a b",
            }
        )
    text = str(caught.value)
    assert text.startswith("7 wrong setting(s)")
    for said in (
        "TALLYGATE_KAFKA is 'kafka'; allowed: host:port",
        "scheme is 'chdb'; allowed: http or https",
        "TALLYGATE_PARTITIONS is '0'; allowed: a whole number from 1 to 1,024",
        "TALLYGATE_FLUSH_MS is 'soon'",
        "TALLYGATE_FLUSH_DECISIONS is '2000000'; allowed: a whole number from 1 to 1,000,000",
        "TALLYGATE_FLUSH_BYTES is '64'; allowed: a whole number from 1,000,000 to 68,719,476,736",
        "TALLYGATE_RECORDER_GROUP is 'a b'",
    ):
        assert said in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://localhost/db", ClickHouseDsn("localhost", 8123, "db")),
        ("https://ch.example/db_2", ClickHouseDsn("ch.example", 8443, "db_2", secure=True)),
        ("http://me:p%40ss@h:1/d", ClickHouseDsn("h", 1, "d", "me", "p@ss")),
        ("http://[::1]:8123/d", ClickHouseDsn("::1", 8123, "d")),
    ],
)
def test_parse_dsn_reads_an_address(text: str, expected: ClickHouseDsn) -> None:
    """Every part that the form has is used."""
    assert expected == parse_dsn(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "scheme is ''"),
        ("http:///db", "host is missing"),
        ("http://h:0/db", "port is 0"),
        ("http://h:99999/db", "port is not a number"),
        ("http://h:x/db", "port is not a number"),
        ("http://h:1/", "database is ''"),
        ("http://h:1/a-b", "database is 'a-b'"),
        ("http://h:1/a;drop", "database is 'a;drop'"),
        ("http://h:1/a/b", "database is 'a/b'"),
        ("http://h:1/db?async_insert=1", "something after the database"),
    ],
)
def test_parse_dsn_names_what_is_wrong(text: str, said: str) -> None:
    """The database's name goes into a statement, so nothing but a name may pass."""
    with pytest.raises(ConfigError) as caught:
        parse_dsn(text)
    assert said in str(caught.value)
    assert "TALLYGATE_CLICKHOUSE" in str(caught.value)


@pytest.mark.parametrize(
    "text", ["ftp://u:hunter2@h:1/d", "http://u:hunter2@:1/", "http://u:hunter2@h:x/d", "http://u:12/hunter2@h/d"]
)
def test_parse_dsn_never_shows_the_password(text: str) -> None:
    """Messages end in logs."""
    with pytest.raises(ConfigError) as caught:
        parse_dsn(text)
    assert "hunter2" not in str(caught.value)


def test_a_dsn_can_be_logged() -> None:
    """Neither its form for people nor its form for programmers holds the password."""
    dsn = parse_dsn("https://u:hunter2@h:1/d")
    assert "https://h:1/d" == dsn.address
    assert "hunter2" not in repr(dsn)
