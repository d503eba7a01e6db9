"""The fixtures that every integration test stands on."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import clickhouse_connect
import redis
from confluent_kafka.admin import AdminClient, NewTopic

from tallygate.engines.valkey import Valkey
from tests.services import KafkaService, freeze, is_running, kill, thaw


def test_valkey_url_answers(valkey_url: str) -> None:
    """Every owner test starts from this address."""
    client = redis.Redis.from_url(valkey_url)
    assert client.ping() is True
    client.close()


def test_fresh_valkey_is_empty_and_can_be_frozen_and_killed(fresh_valkey: Valkey) -> None:
    """Chaos tests freeze and kill the owner, which must be the server itself and not a wrapper."""
    client = redis.Redis.from_url(fresh_valkey.url, socket_timeout=0.2)
    assert client.dbsize() == 0
    freeze(fresh_valkey.pid)
    try:
        client.ping()
    except redis.TimeoutError:
        frozen = True
    else:
        frozen = False
    thaw(fresh_valkey.pid)
    assert frozen
    kill(fresh_valkey.pid)
    assert not is_running(fresh_valkey.pid)
    client.close()


def _create(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for outcome in admin.create_topics([NewTopic(topic, 2, 1)]).values():
        outcome.result()


def _topics(bootstrap: str) -> set[str]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    return {name for name in admin.list_topics(timeout=5).topics if not name.startswith("__")}


def test_kafka_broker_starts_each_test_without_topics(kafka_broker: KafkaService) -> None:
    """Topic names are constants, so what an earlier test produced would be counted here."""
    assert _topics(kafka_broker.bootstrap) == set()
    _create(kafka_broker.bootstrap, "left-behind")
    assert _topics(kafka_broker.bootstrap) == {"left-behind"}


def test_kafka_broker_is_empty_again(kafka_broker: KafkaService) -> None:
    """The same as above, after a test that left a topic."""
    assert _topics(kafka_broker.bootstrap) == set()
    assert is_running(kafka_broker.pid)


def test_database_dsn_is_a_new_database(database_dsn: str, tmp_path: Path) -> None:
    """Tests write into tables of fixed names, side by side on one server."""
    client = clickhouse_connect.get_client(dsn=database_dsn)
    name = urlsplit(database_dsn).path[1:]
    assert client.command("SELECT currentDatabase()") == name
    assert client.query("SHOW TABLES").result_rows == []
    assert client.command("SELECT engine FROM system.databases WHERE name = currentDatabase()") == "Atomic"
    client.close()
