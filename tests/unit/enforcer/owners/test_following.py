"""What a node says of buckets that are elsewhere is followed: as far as it leads, and not where nobody answers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from enforcer.errors import OwnerUnavailable
from enforcer.messages import Answer, Ask, AskFault, Moved
from enforcer.owners.following import ClusterNode
from enforcer.types import Plan

PLAN = Plan("standard", 100.0, 200)
ANSWER = Answer(None, 1, 10.0, 0, 1, ())
ASKS = [Ask(f"caller-{n}", "rate", PLAN, "gw-1/1", 1, (), 1, 0, 0.0, 1, 0.0) for n in range(3)]


class _Told:
    """Says of each caller what it was told to; of others that it answers."""

    def __init__(self, **said: AskFault) -> None:
        self.said = {name.replace("_", "-"): outcome for name, outcome in said.items()}
        self.asked: list[tuple[bool, list[str]]] = []
        self.away = False
        self.closed = False

    def ask(self, asks: Sequence[Ask]) -> Sequence[Answer | AskFault]:
        return self._ask(asks, arriving=False)

    def ask_arriving(self, asks: Sequence[Ask]) -> Sequence[Answer | AskFault]:
        return self._ask(asks, arriving=True)

    def probe(self) -> None:
        """Nothing to prove."""

    def close(self) -> None:
        self.closed = True

    def _ask(self, asks: Sequence[Ask], *, arriving: bool) -> list[Answer | AskFault]:
        self.asked.append((arriving, [ask.caller for ask in asks]))
        if self.away:
            raise OwnerUnavailable("no answer")
        return [self.said.get(ask.caller, ANSWER) for ask in asks]


class _Cluster:
    """A node that is asked, others by port, and a clock."""

    def __init__(self, node: _Told, **others: _Told) -> None:
        self.others = {int(name.removeprefix("at_")): other for name, other in others.items()}
        self.now_ns = 1
        self.node = ClusterNode(
            node, other=lambda _, port: self.others[port], monotonic_ns=lambda: self.now_ns, jitter=lambda: 0.0
        )


def test_each_bucket_is_asked_for_where_it_is() -> None:
    """One has moved for good, one is on its way, one is here: one round trip to each node, and nobody goes without."""
    node = _Told(caller_0=Moved("", port=2), caller_1=Moved("", port=3, arriving=True))
    cluster = _Cluster(node, at_2=_Told(), at_3=_Told())
    outcomes = cluster.node.ask(ASKS)
    assert outcomes == [msgspec.structs.replace(ANSWER, moved=True), ANSWER, ANSWER]
    assert cluster.others[2].asked == [(False, ["caller-0"])]
    assert cluster.others[3].asked == [(True, ["caller-1"])]


def test_a_stale_node_that_names_one_that_is_giving_away_is_followed_to_the_end() -> None:
    """Two things at once: the table is old, and the slot is moving."""
    step = _Told(caller_0=Moved("", port=3, arriving=True))
    cluster = _Cluster(_Told(caller_0=Moved("", port=2)), at_2=step, at_3=_Told())
    assert cluster.node.ask(ASKS[:1]) == [msgspec.structs.replace(ANSWER, moved=True)]
    assert cluster.others[3].asked == [(True, ["caller-0"])]


def test_nodes_that_name_each_other_are_left() -> None:
    """For ever is not an answer."""
    here, there = _Told(caller_0=Moved("", port=2)), _Told(caller_0=Moved("", port=1))
    cluster = _Cluster(here, at_1=here, at_2=there)
    (outcome,) = cluster.node.ask(ASKS[:1])
    assert isinstance(outcome, Moved)
    assert len(here.asked) + len(there.asked) == 3


def test_a_node_that_cannot_be_reached_costs_its_buckets_alone_and_is_not_tried_each_time() -> None:
    """Else one frozen node would slow down all callers of the node that names it."""
    cluster = _Cluster(_Told(caller_0=Moved("", port=2)), at_2=_Told())
    cluster.others[2].away = True
    for _ in range(3):
        first, *rest = cluster.node.ask(ASKS)
        assert isinstance(first, Moved)
        assert "2" in first.cause
        assert rest == [ANSWER, ANSWER]
    assert len(cluster.others[2].asked) == 1
    cluster.others[2].away = False
    cluster.now_ns += 10_000_000_000
    assert isinstance(cluster.node.ask(ASKS)[0], Answer)


def test_a_connection_elsewhere_ends_when_it_is_no_longer_used_or_with_the_node() -> None:
    """Each node of a large cluster would otherwise keep one to each other."""
    node = _Told(caller_0=Moved("", port=2))
    cluster = _Cluster(node, at_2=_Told())
    cluster.node.ask(ASKS)
    node.said.clear()
    cluster.now_ns += 11_000_000_000
    cluster.node.ask(ASKS)
    assert cluster.others[2].closed
    cluster.others[2].closed = False
    node.said["caller-0"] = Moved("", port=2)
    cluster.node.ask(ASKS)
    cluster.node.close()
    assert cluster.others[2].closed
    assert node.closed
