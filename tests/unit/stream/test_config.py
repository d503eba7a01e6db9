"""Settings of the log: read once, and every fault told at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from enforcer.errors import ConfigError
from stream.config import StreamConfig


def test_defaults_are_what_tallygate_up_serves() -> None:
    """A newcomer sets nothing."""
    config = StreamConfig.from_env({})
    assert ("127.0.0.1:19092", 4, 2_000, 1.0) == (
        config.bootstrap,
        config.partitions,
        config.block_decisions,
        config.flush_s,
    )


def test_settings_are_read_and_empty_ones_are_not_set() -> None:
    """A container platform passes empty variables."""
    environ = {
        "TALLYGATE_KAFKA": " kafka-1:9092,[::1]:9093 ",
        "TALLYGATE_PARTITIONS": "12",
        "TALLYGATE_FLUSH_S": "0.5",
        "TALLYGATE_HEARTBEAT_S": "",
    }
    config = StreamConfig.from_env(environ)
    assert ("kafka-1:9092,[::1]:9093", 12, 0.5, 5.0) == (
        config.bootstrap,
        config.partitions,
        config.flush_s,
        config.heartbeat_s,
    )


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"HOME": "/home/ann"}, "/home/ann/.local/state/tallygate/spool"),
        ({"HOME": "/home/ann", "XDG_STATE_HOME": "/state"}, "/state/tallygate/spool"),
        ({"HOME": "/home/ann", "XDG_STATE_HOME": "relative"}, "/home/ann/.local/state/tallygate/spool"),
        ({}, None),
        ({"HOME": "/home/ann", "TALLYGATE_SPOOL_DIR": ""}, None),
        ({"HOME": "/home/ann", "TALLYGATE_SPOOL_DIR": "/var/spool/tallygate"}, "/var/spool/tallygate"),
    ],
)
def test_spool_is_where_a_users_programs_keep_their_state(environ: dict[str, str], folder: str | None) -> None:
    """A library must not write where nobody looks; and whoever wants no file at all says so by an empty setting."""
    assert (None if folder is None else Path(folder)) == StreamConfig.from_env(environ).spool_dir


def test_spool_folder_that_no_system_can_have_is_a_clear_error() -> None:
    """Said at the start, with the setting's name."""
    with pytest.raises(ConfigError, match=r"TALLYGATE_SPOOL_DIR is 'a\\x00b'; allowed: the path of a folder"):
        StreamConfig.from_env({"TALLYGATE_SPOOL_DIR": "a\0b"})


@pytest.mark.parametrize(
    "bootstrap", ["kafka", "kafka:", "kafka:0", "kafka:99999", "http://kafka:9092", "a:1,,b:2", ":9"]
)
def test_address_of_another_form_is_a_clear_error(bootstrap: str) -> None:
    """The client itself would only say that it cannot connect, for ever."""
    with pytest.raises(ConfigError, match=r"TALLYGATE_KAFKA is .*; allowed: host:port"):
        StreamConfig.from_env({"TALLYGATE_KAFKA": bootstrap})


def test_a_password_in_the_address_is_not_shown() -> None:
    """There is no place for one, and whoever tries has one to lose: messages end in logs."""
    with pytest.raises(ConfigError) as caught:
        StreamConfig.from_env({"TALLYGATE_KAFKA": "u:hunter2@kafka:9092"})
    assert "hunter2" not in str(caught.value)


def test_all_faults_are_told_at_once() -> None:
    """Nobody wants to restart a gateway five times to learn five mistakes."""
    environ = {
        "TALLYGATE_KAFKA": "nowhere",
        "TALLYGATE_PARTITIONS": "four",
        "TALLYGATE_FLUSH_S": "nan",
        "TALLYGATE_BLOCK_DECISIONS": "70000",
        "TALLYGATE_KAFKA_COMPRESSION": "gzip",
    }
    with pytest.raises(ConfigError) as caught:
        StreamConfig.from_env(environ)
    for name in environ:
        assert f"{name} is " in str(caught.value)
