"""The same contract through what places buckets on servers: a ring of two, and a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from enforcer.messages import Answer, Ask, AskFault
from enforcer.owners.asking import ask_server
from enforcer.owners.cluster import ClusterOwners
from enforcer.owners.port import Owner, Owners
from enforcer.owners.redis import RedisOwner
from enforcer.owners.ring import Ring
from tallygate.engines.valkey import start_valkey
from tests.contract.desk import Desk, RedisDesk
from tests.contract.owner import OwnerContract
from tests.contract.owner_faults import OwnerFaults
from tests.integration.enforcer.servers import free_port, redis_server
from tests.processes import wait_until


class _Placed:
    """All owners as one: each ask goes to the node that holds its bucket, as a copy's askers do."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners

    def ask(self, asks: Sequence[Ask]) -> Sequence[Answer | AskFault]:
        placed = [self._owners.place(ask.caller, ask.limit) for ask in asks]
        outcomes: dict[int, Answer | AskFault] = {}
        for name in set(placed):
            mine = [place for place, node in enumerate(placed) if node == name]
            found = self._owners.nodes[name].ask([asks[place] for place in mine])
            outcomes.update(zip(mine, found, strict=True))
        return [outcomes[place] for place in range(len(asks))]

    def probe(self) -> None:
        for owner in self._owners.nodes.values():
            owner.probe()

    def close(self) -> None:
        for owner in self._owners.nodes.values():
            owner.close()
        self._owners.close()


class ManyDesk(Desk):
    """Servers, each with the same clock in hand, behind one placing."""

    def __init__(self, owners: Owners, desks: Sequence[RedisDesk]) -> None:
        super().__init__(_Placed(owners))
        self._owners, self._desks = owners, desks
        for desk in desks:
            desk.caller = self.caller

    def set_clock(self, now_us: int) -> None:
        super().set_clock(now_us)
        for desk in self._desks:
            desk.set_clock(now_us)

    def lose_state(self) -> None:
        for desk in self._desks:
            desk.lose_state()

    def spoil(self) -> None:
        for desk in self._desks:
            desk.spoil()

    def refusing(self) -> Owner:
        return self._desks[0].refusing()

    def close(self) -> None:
        """End the connections."""
        self.owner.close()
        for desk in self._desks:
            desk.close()


@pytest.fixture(scope="module")
def other_url() -> Iterator[str]:
    """A second server."""
    server = start_valkey()
    yield server.url
    server.stop()


@pytest.fixture(scope="module")
def cluster_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster of one: the script of these tests reads a key of their own, which must be on the same node."""
    with redis_server(tmp_path_factory.mktemp("cluster"), cluster_enabled="yes", cluster_port=free_port()) as server:
        ask_server(server.url, ("CLUSTER", "ADDSLOTSRANGE", "0", "16383"), timeout_s=5.0)
        wait_until(
            lambda: b"cluster_state:ok" in ask_server(server.url, ("CLUSTER", "INFO"), timeout_s=5.0),
            20,
            what="the cluster",
        )
        yield server.url


class TestRing(OwnerContract, OwnerFaults):
    """Two servers that know nothing of each other."""

    @pytest.fixture
    def desk(self, valkey_url: str, other_url: str) -> Iterator[Desk]:
        """With a clock in hand."""
        desks = [RedisDesk(url) for url in (valkey_url, other_url)]
        made = ManyDesk(Ring({f"node-{number}": desk.owner for number, desk in enumerate(desks)}), desks)
        yield made
        made.close()


class TestCluster(OwnerContract, OwnerFaults):
    """By slots, with what a node says of buckets that are elsewhere followed."""

    @pytest.fixture
    def desk(self, cluster_url: str) -> Iterator[Desk]:
        """With a clock in hand."""
        desk = RedisDesk(cluster_url)
        owners = ClusterOwners(
            [cluster_url],
            url_of=lambda host, port: f"redis://{host}:{port}/0",
            owner_of=lambda url: RedisOwner(url, timeout_s=10.0, script=desk.script),
            timeout_s=10.0,
        )
        owners.refresh()
        made = ManyDesk(owners, [desk])
        yield made
        made.close()
