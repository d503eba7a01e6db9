"""The limiter on a real server that answers PING and refuses the script: a replica, full memory, a permission."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest
import redis

from enforcer.identity import new_identity
from enforcer.limiting.limiter import Limiter
from enforcer.owners.redis import RedisOwner
from enforcer.settings import LimiterSettings
from enforcer.testing import RecordingSink
from enforcer.types import Source
from tallygate.engines.valkey import Valkey
from tests.processes import wait_until
from tests.unit.enforcer.harness import make_policy

ASK_S = 2.0


def _replica(client: redis.Redis) -> Callable[[], object]:
    client.replicaof("127.0.0.1", "1")
    return lambda: client.replicaof("NO", "ONE")


def _full(client: redis.Redis) -> Callable[[], object]:
    client.config_set("maxmemory", 1)
    return lambda: client.config_set("maxmemory", 0)


def _forbidden(client: redis.Redis) -> Callable[[], object]:
    client.acl_setuser("default", enabled=True, commands=["-evalsha"])
    return lambda: client.acl_setuser("default", enabled=True, commands=["+evalsha"])


def _other_keys_only(client: redis.Redis) -> Callable[[], object]:
    client.acl_setuser("default", enabled=True, reset_keys=True, keys=["other:*"])
    return lambda: client.acl_setuser("default", enabled=True, reset_keys=True, keys=["*"])


@pytest.mark.parametrize(
    ("refuse", "said"),
    [(_replica, "read only"), (_full, "maxmemory"), (_forbidden, "permission"), (_other_keys_only, "permission")],
    ids=["replica", "full memory", "no permission", "no permission for the keys"],
)
def test_an_owner_that_refuses_the_script_is_away_once(
    fresh_valkey: Valkey,
    refuse: Callable[[redis.Redis], Callable[[], object]],
    said: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It used to be found at each probe and lost at the next request, which paid for it; the log filled with both."""
    client = redis.Redis.from_url(fresh_valkey.url)
    sink = RecordingSink()
    policy = make_policy(timeouts={"ask_ms": round(ASK_S * 1e3)})
    owner = RedisOwner(fresh_valkey.url, timeout_s=ASK_S)
    identity = new_identity("copy", unix_ms=time.time_ns() // 1_000_000, pid=os.getpid())
    limiter = Limiter(policy, owner, sink, identity, settings=LimiterSettings(owner_name=owner.address))
    assert Source.SHARED is limiter.check("before").source
    client.config_resetstat()
    heal = refuse(client)
    numbers = iter(range(1_000_000))

    def refused() -> int:
        limiter.check(f"caller-{next(numbers)}")
        stats = client.info("commandstats")["cmdstat_evalsha"]
        return int(stats["failed_calls"]) + int(stats["rejected_calls"])

    wait_until(lambda: refused() >= 5, 20, what="five refusals")
    assert limiter.degraded
    assert [True] == [change.entered for change in sink.changes]
    assert said in sink.changes[0].cause
    heal()
    wait_until(lambda: not limiter.degraded, 10, what="the recovery")
    assert Source.SHARED is limiter.check("after").source
    limiter.close()
    client.close()
    assert [True, False] == [change.entered for change in sink.changes]
    lost, found = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    assert [1, 1] == [line.count(fresh_valkey.address) for line in (lost, found)]
    assert said in lost
    assert list(range(len(sink.verdicts))) == sorted(verdict.seq for verdict in sink.verdicts)
