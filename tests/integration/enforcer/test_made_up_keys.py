"""A million made-up keys against a real owner: neither side grows with them, and who pays is served as ever."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

import pytest
import redis

from enforcer.identity import new_identity
from enforcer.limiting.limiter import Limiter
from enforcer.owners.redis import RedisOwner
from enforcer.settings import LimiterSettings
from enforcer.sink import NullSink
from tallygate.engines.valkey import Valkey
from tests.unit.enforcer.harness import make_policy

KEYS = 1_000_000
_WARM = 50_000
#: What the process may grow by for other reasons than keys: one object kept for each would be fifty times this.
_SLACK_BYTES = 4_000_000


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.parametrize(
    ("unnamed", "most_callers"), [("anonymous", 100_000), ("own", 100)], ids=["shared buckets", "bounded callers"]
)
def test_a_million_made_up_keys_change_neither_memory_nor_service(
    fresh_valkey: Valkey, unnamed: str, most_callers: int
) -> None:
    """Whoever invents a key per request must not fill the copy, the owner, or the way of a caller who pays."""
    policy = make_policy(
        rate_per_s=1_000, burst=2_000, unnamed=unnamed, anonymous={"buckets": 64}, callers={"acme": "standard"}
    )
    owner = RedisOwner(fresh_valkey.url, timeout_s=2.0)
    identity = new_identity("copy", unix_ms=time.time_ns() // 1_000_000, pid=os.getpid())
    limiter = Limiter(policy, owner, NullSink(), identity, settings=LimiterSettings(max_callers=most_callers))
    server = redis.Redis.from_url(fresh_valkey.url)
    served = []
    try:
        for number in range(KEYS):
            limiter.check(f"made-up-{number}")
            if number % 1_000 == 0:
                served.append(limiter.check("acme"))
            if number == _WARM:
                before_copy, before_owner = _resident_bytes(), server.info("memory")["used_memory"]
        assert all(verdict.allowed for verdict in served)
        assert {"acme"} == {verdict.basis.caller for verdict in served}
        assert len(limiter._directory.accounts) <= 102
        assert server.dbsize() <= 102
        assert _resident_bytes() - before_copy < _SLACK_BYTES
        assert server.info("memory")["used_memory"] - before_owner < _SLACK_BYTES
    finally:
        limiter.close()
        server.close()
