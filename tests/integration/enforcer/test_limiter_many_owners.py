"""A limiter on many owners: one that is frozen degrades only its own callers, and a failover is followed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from enforcer.identity import new_identity
from enforcer.limiting.limiter import Limiter
from enforcer.owners.addresses import owners_from_url
from enforcer.testing import RecordingSink
from enforcer.types import Source
from tallygate.engines.valkey import Valkey, start_valkey
from tests.integration.enforcer.clusters import Cluster
from tests.integration.enforcer.test_owner_cluster import cluster
from tests.processes import freeze, kill, thaw, wait_until
from tests.unit.enforcer.harness import make_policy

__all__ = ["cluster"]

CALLERS = [f"caller-{number}" for number in range(40)]


@contextmanager
def _limiter(url: str, *, ask_ms: int = 50) -> Iterator[tuple[Limiter, RecordingSink]]:
    sink = RecordingSink()
    policy = make_policy(rate_per_s=1_000, burst=2_000, timeouts={"ask_ms": ask_ms})
    owners = owners_from_url(url, timeout_s=ask_ms / 1e3)
    limiter = Limiter(policy, owners, sink, new_identity("copy", unix_ms=time.time_ns() // 1_000_000, pid=1))
    try:
        yield limiter, sink
    finally:
        limiter.close()


@pytest.fixture
def two(fresh_valkey: Valkey, tmp_path: Path) -> Iterator[tuple[Valkey, Valkey]]:
    """Two servers that know nothing of each other."""
    other = start_valkey(log_dir=tmp_path / "other")
    yield fresh_valkey, other
    other.stop()


def _assert_whole(sink: RecordingSink) -> None:
    assert list(range(len(sink.verdicts))) == sorted(verdict.seq for verdict in sink.verdicts)
    spent = sink.spent_by_grant()
    assert spent == {key: total.spent for key, total in sink.final_totals().items() if total.spent}


@pytest.mark.services
def test_a_frozen_owner_degrades_only_the_callers_whose_buckets_it_holds(two: tuple[Valkey, Valkey]) -> None:
    """Half of the customers must not pay for the other half's outage, not even a timeout."""
    with _limiter(f"{two[0].url} {two[1].url}", ask_ms=500) as (limiter, sink):
        assert {Source.SHARED} == {limiter.check(caller).source for caller in CALLERS}
        node_of = {caller: limiter._lanes[caller, "default"].account.node for caller in CALLERS}
        assert 2 == len(set(node_of.values()))
        frozen = next(node for node in node_of.values() if f":{two[0].port}/" in node)
        freeze(two[0].pid)
        try:
            limiter.check(f"new-{frozen}")
            wait_until(lambda: limiter.degraded or _meets(limiter), 5, what="the breaker to open")
            began = time.monotonic()
            sources = {caller: {limiter.check(caller).source for _ in range(30)} for caller in CALLERS}
            assert time.monotonic() - began < 2
            for caller, found in sources.items():
                assert (Source.DEGRADED in found) == (node_of[caller] == frozen), caller
        finally:
            thaw(two[0].pid)
        wait_until(lambda: not limiter.degraded, 10, what="the recovery")
    _assert_whole(sink)
    assert {frozen} == {change.owner for change in sink.changes}


def _meets(limiter: Limiter) -> bool:
    """Ask for new callers until one of them is the frozen owner's."""
    limiter.check(f"new-{time.monotonic_ns()}")
    return limiter.degraded


@pytest.mark.services
def test_a_big_caller_with_a_frozen_node_of_its_own_slows_nobody_else(two: tuple[Valkey, Valkey]) -> None:
    """It was pinned so that its trouble is its own: whoever else asks must not even wait longer."""
    shared, own = (f"redis://127.0.0.1:{server.port}/0" for server in two)
    placing = {"pin": {"big": own}, "reserved": [own]}
    policy = make_policy(rate_per_s=1_000, burst=2_000, timeouts={"ask_ms": 500}, owners=placing)
    owners = owners_from_url(f"{shared},{own}", timeout_s=0.5, placing=policy.owners)
    sink = RecordingSink()
    limiter = Limiter(policy, owners, sink, new_identity("copy", unix_ms=time.time_ns() // 1_000_000, pid=1))
    assert {limiter.check(caller).source for caller in ("big", *CALLERS)} == {Source.SHARED}
    freeze(two[1].pid)
    try:
        over = threading.Event()
        big = threading.Thread(target=lambda: [limiter.check("big", cost=20) for _ in iter(over.is_set, True)])
        big.start()
        wait_until(lambda: limiter.degraded, 10, what="the breaker to open")
        # Each of these must ask: how long that takes is what the big caller's node must not change.
        asked = [_timed(limiter, f"other-{number}") for number in range(300)]
        over.set()
        big.join(10)
    finally:
        thaw(two[1].pid)
    wait_until(lambda: not limiter.degraded, 10, what="the recovery")
    limiter.close()
    assert {source for source, _ in asked} == {Source.SHARED}
    assert sorted(took_s for _, took_s in asked)[297] < 0.1
    assert {verdict.basis.caller for verdict in sink.verdicts if verdict.source is Source.DEGRADED} == {"big"}
    _assert_whole(sink)


def _timed(limiter: Limiter, caller: str) -> tuple[Source, float]:
    began = time.monotonic()
    return limiter.check(caller).source, time.monotonic() - began


@pytest.mark.services
def test_a_limiter_follows_a_clusters_failover(cluster: Cluster) -> None:
    """A killed master costs its callers seconds of degraded verdicts, and the others nothing."""
    with _limiter(cluster.url, ask_ms=500) as (limiter, sink):

        def served() -> bool:
            return all(limiter.check(caller).source is not Source.DEGRADED for caller in CALLERS)

        wait_until(served, 15, what="every caller on its node")
        node_of = {caller: limiter._lanes[caller, "default"].account.node for caller in CALLERS}
        assert 3 == len(set(node_of.values()))
        victim = node_of[CALLERS[0]]
        kill(cluster.running[int(victim.rsplit(":", 1)[1].split("/")[0])].pid)
        wait_until(lambda: limiter.check(CALLERS[0]).source is Source.DEGRADED, 15, what="the outage")
        wait_until(served, 30, what="the promoted replica")
        assert victim != limiter._lanes[CALLERS[0], "default"].account.node
    _assert_whole(sink)
