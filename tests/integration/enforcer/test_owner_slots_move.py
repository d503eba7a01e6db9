"""A limiter under load on a real cluster whose slots move: nobody is degraded, and no token is minted or lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from redis.crc import key_slot

from enforcer.limiting.limiter import Limiter
from enforcer.owners.addresses import owners_from_url
from enforcer.owners.keys import bucket_key
from enforcer.types import Source
from tests.integration.enforcer.clusters import Cluster, cluster_of
from tests.integration.enforcer.copies import assert_buckets_hold_the_rest, limiter_on
from tests.integration.enforcer.test_owner_permissions import CLUSTER_RULES, RULES
from tests.processes import wait_until

ASK_MS = 2_000
CALLERS = [f"caller-{number}" for number in range(60)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three masters."""
    with cluster_of(tmp_path_factory.mktemp("cluster"), masters=3) as made:
        yield made


def _slot(caller: str) -> int:
    return key_slot(bucket_key(caller, "rate"))


@contextmanager
def _load(limiter: Limiter, callers: Sequence[str]) -> Iterator[None]:
    """Requests of all callers from two threads; costs that differ, so that the owners are asked all the time."""
    over = threading.Event()
    failed: list[BaseException] = []

    def call(offset: int) -> None:
        number = offset
        try:
            while not over.wait(0.005):
                number += 1
                limiter.check(callers[number % len(callers)], cost=1 + number % 3)
        except BaseException as error:  # noqa: BLE001 - said in the test's own thread
            failed.append(error)

    threads = [threading.Thread(target=call, args=(offset,)) for offset in (0, 30)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(20)
    assert failed == []


@pytest.mark.services
def test_a_slot_that_moves_degrades_nobody_and_mints_nothing(cluster: Cluster) -> None:
    """Resharding is everyday work: each bucket is asked for where it is, and the documented permissions are enough."""
    for port in cluster.ports:
        cluster.say(port, "ACL", "SETUSER", *RULES, *CLUSTER_RULES)
    owners = owners_from_url(cluster.url.replace("://", "://tallygate:a-long-password@"), timeout_s=ASK_MS / 1e3)
    owners.refresh()
    source, target = cluster.holder(_slot(CALLERS[0])), cluster.holder(0)
    if source == target:
        target = next(port for port in cluster.ports if port != source)
    slots = sorted({_slot(caller) for caller in CALLERS if cluster.holder(_slot(caller)) == source})
    newcomers = [f"new-{n}" for n in range(200_000) if _slot(f"new-{n}") in slots[:2]][:6]
    with limiter_on(owners, ask_ms=ASK_MS) as (limiter, sink), _load(limiter, CALLERS):
        wait_until(lambda: len(sink.verdicts) > 200, 10, what="the load")
        cluster.begin(slots, source, target)
        # Their buckets are nowhere yet: they begin where the slot is going to.
        assert {limiter.check(caller).source for caller in newcomers} == {Source.SHARED}
        for slot in slots:
            cluster.move_keys(slot, source, target)
        asked = cluster.count(target, "asking")
        wait_until(lambda: cluster.count(target, "asking") > asked + 5, 10, what="asks for what has left")
        cluster.end(slots, source, target)
        name = f"redis://127.0.0.1:{target}/0"
        wait_until(lambda: {owners.place(caller, "rate") for caller in newcomers} == {name}, 10, what="the new placing")
        seen = len(sink.verdicts)
        wait_until(lambda: len(sink.verdicts) > seen + 200, 10, what="the load after it")
    assert Source.DEGRADED not in {verdict.source for verdict in sink.verdicts}
    assert sink.changes == []
    assert_buckets_hold_the_rest(cluster.url, sink, [*CALLERS, *newcomers])


@pytest.mark.services
def test_a_node_comes_and_goes_and_degrades_nobody(cluster: Cluster) -> None:
    """A copy follows to a node that it has never heard of, and forgets one that is gone."""
    callers = [f"grown-{number}" for number in range(60)]
    owners = owners_from_url(cluster.url, timeout_s=ASK_MS / 1e3)
    owners.refresh()
    source = cluster.holder(_slot(callers[0]))
    slots = sorted({_slot(caller) for caller in callers if cluster.holder(_slot(caller)) == source})
    with limiter_on(owners, ask_ms=ASK_MS) as (limiter, sink), _load(limiter, callers):
        wait_until(lambda: len(sink.verdicts) > 100, 10, what="the load")
        grown = cluster.add()
        for here, there, expected in ((source, grown, True), (grown, source, False)):
            cluster.begin(slots, here, there)
            for slot in slots:
                cluster.move_keys(slot, here, there)
            cluster.end(slots, here, there)
            known = f"redis://127.0.0.1:{grown}/0"
            wait_until(lambda known=known, want=expected: (known in owners.nodes) is want, 10, what="the placing")  # type: ignore[misc]  # bound now
            seen = len(sink.verdicts)
            wait_until(lambda seen=seen: len(sink.verdicts) > seen + 100, 10, what="the load after it")  # type: ignore[misc]  # bound now
        cluster.remove(grown)
        seen = len(sink.verdicts)
        wait_until(lambda: len(sink.verdicts) > seen + 100, 10, what="the load without it")
    assert Source.DEGRADED not in {verdict.source for verdict in sink.verdicts}
    assert_buckets_hold_the_rest(cluster.url, sink, callers)
