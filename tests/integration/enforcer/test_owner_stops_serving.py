"""The limiter on a real server that is up and does not serve: busy, full, locked, unable to save, still loading."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest
import redis

from enforcer.errors import OwnerUnavailable
from enforcer.messages import Answer, Ask, AskFault
from enforcer.owners.asking import ask_server
from enforcer.owners.redis import RedisOwner
from enforcer.types import Source
from tallygate.engines.valkey import Valkey
from tests.integration.enforcer.copies import assert_buckets_hold_the_rest, limiter_on
from tests.integration.enforcer.servers import redis_server
from tests.processes import wait_until

ASK_MS = 1_000
Heal = Callable[[], object]
Made = TypeVar("Made")


class _Counted:
    """An owner on a server, and how often it could not be had."""

    def __init__(self, url: str) -> None:
        self._owner = RedisOwner(url, timeout_s=ASK_MS / 1e3)
        self.failures = 0

    def ask(self, asks: Sequence[Ask]) -> Sequence[Answer | AskFault]:
        return self._count(lambda: self._owner.ask(asks))

    def probe(self) -> None:
        self._count(self._owner.probe)

    def close(self) -> None:
        self._owner.close()

    def _count(self, call: Callable[[], Made]) -> Made:
        try:
            return call()
        except OwnerUnavailable:
            self.failures += 1
            raise


def _cannot_save(client: redis.Redis, folder: Path) -> Heal:
    (folder / "dump.rdb" / "in-the-way").mkdir(parents=True)
    client.config_set("save", "3600 1")
    client.bgsave()
    wait_until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", 10, what="the failed save")
    return lambda: client.config_set("save", "")


def _without_replicas(client: redis.Redis, _folder: Path) -> Heal:
    client.config_set("min-replicas-to-write", 1)
    return lambda: client.config_set("min-replicas-to-write", 0)


def _out_of_step(client: redis.Redis, _folder: Path) -> Heal:
    client.config_set("replica-serve-stale-data", "no")
    client.replicaof("127.0.0.1", "1")
    return lambda: client.replicaof("NO", "ONE")


def _busy(client: redis.Redis, _folder: Path) -> Heal:
    client.config_set("busy-reply-threshold", 1)
    host = client.connection_pool.connection_kwargs
    other = socket.create_connection((host["host"], host["port"]))
    other.sendall(b"EVAL 'while true do end' 0\r\n")

    def heal() -> None:
        client.script_kill()
        other.close()

    return heal


def _full_of_clients(client: redis.Redis, _folder: Path) -> Heal:
    client.config_set("maxclients", 1)
    client.client_kill_filter(_type="normal", skipme=True)
    return lambda: client.config_set("maxclients", 100)


def _other_password(client: redis.Redis, _folder: Path) -> Heal:
    client.config_set("requirepass", "changed")
    client.client_kill_filter(_type="normal", skipme=True)
    return lambda: client.config_set("requirepass", "")


@pytest.mark.services
@pytest.mark.parametrize(
    ("stop", "said"),
    [
        (_cannot_save, "MISCONF"),
        (_without_replicas, "NOREPLICAS"),
        (_out_of_step, "Link with MASTER is down"),
        (_busy, "BUSY"),
        (_full_of_clients, "max number of clients"),
        (_other_password, "Authentication required"),
    ],
    ids=["cannot save", "without replicas", "out of step", "busy", "full of clients", "other password"],
)
def test_an_owner_that_stops_serving_is_away_once_and_found_again(
    fresh_valkey: Valkey, tmp_path: Path, stop: Callable[[redis.Redis, Path], Heal], said: str
) -> None:
    """What it says is the reason on the record; requests go on without it, and no token is minted or lost by it."""
    client = redis.Redis.from_url(fresh_valkey.url, single_connection_client=True)
    owner = _Counted(fresh_valkey.url)
    callers = [f"caller-{number}" for number in range(6)]
    with limiter_on(owner, ask_ms=ASK_MS) as (limiter, sink):
        assert {limiter.check(caller).source for caller in callers} == {Source.SHARED}
        heal = stop(client, tmp_path)
        newcomers = iter(range(1_000_000))
        wait_until(lambda: limiter.check(f"new-{next(newcomers)}").source is Source.DEGRADED, 10, what="the outage")
        wait_until(lambda: owner.failures >= 3, 10, what="three probes")
        assert {limiter.check(f"late-{number}").source for number in range(6)} == {Source.DEGRADED}
        heal()
        wait_until(lambda: not limiter.degraded, 10, what="the recovery")
        assert {limiter.check(f"after-{number}").source for number in range(3)} == {Source.SHARED}
    client.close()
    assert [change.entered for change in sink.changes] == [True, False]
    assert sink.changes[0].cause.startswith("it refused: ")
    assert said in sink.changes[0].cause
    assert_buckets_hold_the_rest(fresh_valkey.url, sink, callers)


@pytest.mark.services
def test_an_owner_that_is_still_loading_is_away_until_it_has_loaded(tmp_path: Path) -> None:
    """It answers from the first moment on, and knows no bucket yet: believing it would hand out full ones."""
    with redis_server(tmp_path, save="3600 1") as before:
        client = redis.Redis.from_url(before.url)
        with limiter_on(RedisOwner(before.url, timeout_s=2.0), ask_ms=2_000) as (limiter, first):
            assert [limiter.check("acme").allowed for _ in range(50)] == [True] * 50
        ask_server(before.url, ("DEBUG", "POPULATE", "400", "key", "200"), timeout_s=5.0)
        client.save()
        client.close()
    slowly = {"key_load_delay": 2_000, "loading_process_events_interval_bytes": 1_024}
    with redis_server(tmp_path, port=before.port, **slowly) as after:
        with limiter_on(RedisOwner(after.url, timeout_s=2.0), ask_ms=2_000) as (limiter, second):
            assert limiter.check("acme").source is Source.DEGRADED
            wait_until(lambda: not limiter.degraded, 20, what="the recovery")
            assert limiter.check("acme").source is Source.SHARED
        assert [change.entered for change in second.changes] == [True, False]
        assert "it refused: BusyLoadingError" in second.changes[0].cause
        second.verdicts[:0] = first.verdicts
        assert_buckets_hold_the_rest(after.url, second, ["acme"])
