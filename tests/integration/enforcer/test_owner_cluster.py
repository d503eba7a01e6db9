"""A real cluster of masters and replicas: placed right, and a failover followed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from enforcer.errors import OwnerUnavailable
from enforcer.messages import Answer, Ask, Moved
from enforcer.owners.addresses import owners_from_url
from enforcer.owners.port import Owners
from enforcer.policies.addresses import read_policy_address
from enforcer.policies.stored import StoredPolicy
from enforcer.types import Plan
from tests.integration.enforcer.clusters import Cluster, cluster_of
from tests.processes import kill, wait_until

PLAN = Plan("still", 1e-9, 200)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three masters and three replicas."""
    with cluster_of(tmp_path, masters=3, replicas=3) as made:
        yield made


def _ask(owners: Owners, caller: str, ask_no: int) -> Answer | Moved | None:
    asked = Ask(caller, "rate", PLAN, "gw-1/1", ask_no, (), 1, 0, 0.0, 1, 0.0)
    try:
        (outcome,) = owners.nodes[owners.place(caller, "rate")].ask([asked])
    except OwnerUnavailable:
        return None
    assert isinstance(outcome, (Answer, Moved))
    return outcome


def _policy_is_found_from(replica: int) -> None:
    """The policy's key is at whichever node holds its slot; a replica is not it."""
    stored = StoredPolicy(read_policy_address(f"redis+cluster://127.0.0.1:{replica}"))
    document = b"version: 1\nplans: {p: {rate_per_s: 1, burst: 1}}\ndefault_plan: p\n"
    assert "pushed" == stored.push(document, source="-")
    assert (document, "unchanged") == (stored.read(), stored.push(document, source="-"))
    stored.close()


@pytest.mark.services
def test_cluster_is_found_from_one_seed_and_a_failover_followed(cluster: Cluster) -> None:
    """A killed master must cost its callers seconds, and the others nothing."""
    seed = cluster.ports[-1]
    owners = owners_from_url(f"redis+cluster://127.0.0.1:{seed}", timeout_s=1.0)
    callers = [f"caller-{n}" for n in range(40)]
    # The seed is a replica: what it says is followed, and that the placing is an old one is said.
    first = [_ask(owners, caller, 1) for caller in callers]
    assert all(isinstance(outcome, Answer) and outcome.moved for outcome in first)
    assert owners.refresh()
    assert len(owners.nodes) == 3
    kept = dict(owners.nodes)
    wait_until(lambda: all(isinstance(_ask(owners, caller, 2), Answer) for caller in callers), 15, what="all answered")
    _policy_is_found_from(seed)
    victim = owners.place(callers[0], "rate")
    port = int(victim.rsplit(":", 1)[1].split("/")[0])
    kill(cluster.running[port].pid)
    asked = iter(range(3, 1_000_000))

    def followed() -> bool:
        owners.refresh()
        return isinstance(_ask(owners, callers[0], next(asked)), Answer)

    wait_until(followed, 15, what="the promoted replica's answer")
    assert victim not in owners.nodes
    assert all(owners.nodes[name] is kept[name] for name in kept if name != victim)

    def all_answered() -> bool:
        # Nodes hear of the promotion one after the other, and refuse what they are unsure of until then.
        owners.refresh()
        return all(isinstance(_ask(owners, caller, next(asked)), Answer) for caller in callers)

    wait_until(all_answered, 15, what="all answered again")
    for owner in (*owners.nodes.values(), *kept.values()):
        owner.close()
    owners.close()


@pytest.mark.services
def test_nodes_that_do_not_tell_their_host_are_found_where_the_others_were(tmp_path: Path) -> None:
    """Behind one name for all nodes a cluster tells ports only; the host is then the one that was asked."""
    with cluster_of(tmp_path, masters=3, cluster_preferred_endpoint_type="unknown-endpoint") as made:
        owners = owners_from_url(made.url, timeout_s=2.0)
        callers = [f"caller-{n}" for n in range(20)]
        assert {type(_ask(owners, caller, 1)) for caller in callers} == {Answer}
        assert owners.refresh()
        assert sorted(owners.nodes) == sorted(f"redis://127.0.0.1:{port}/0" for port in made.ports)
        second = [_ask(owners, caller, 2) for caller in callers]
        assert not any(isinstance(outcome, Answer) and outcome.moved for outcome in second)
        for owner in owners.nodes.values():
            owner.close()
