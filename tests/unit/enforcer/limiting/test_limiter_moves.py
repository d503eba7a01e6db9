"""A bucket that is placed at another node while its old one is being asked: served there, and exact."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from enforcer.clock import SystemClock
from enforcer.identity import new_identity
from enforcer.limiting.limiter import Limiter
from enforcer.messages import Answer, Ask, AskFault
from enforcer.owners.memory import MemoryOwner
from enforcer.owners.port import Owner
from enforcer.owners.ring import Ring
from enforcer.testing import RecordingSink
from enforcer.types import Source
from tests.unit.enforcer.harness import make_policy

BURST = 200


class _Node:
    """One name of the bucket. What it does between asking and answering is said by whoever makes it."""

    def __init__(self, bucket: MemoryOwner, then: Callable[[], object]) -> None:
        self._bucket, self._then = bucket, then

    def ask(self, asks: Sequence[Ask]) -> Sequence[Answer | AskFault]:
        outcomes = self._bucket.ask(asks)
        self._then()
        return outcomes

    def probe(self) -> None:
        self._bucket.probe()

    def close(self) -> None:
        """The bucket is everybody's."""


class _Moving:
    """Two names for one bucket, as a slot that moves has: first at `old`, then at `new`."""

    def __init__(self) -> None:
        self.bucket = MemoryOwner(now_us=SystemClock().unix_us)
        self.asked_anew = threading.Event()
        old, new = _Node(self.bucket, self.move), _Node(self.bucket, self.asked_anew.set)
        self.nodes: Mapping[str, Owner] = {"old": old, "new": new}
        self.version = 0
        self.limiter: Limiter | None = None

    def move(self) -> None:
        """As the asker of a third node would, having heard of it first; the old answer is the slower one."""
        if self.version == 0 and self.limiter is not None:
            self.version = 1
            self.limiter._askers.look_again()
            assert self.asked_anew.wait(10)

    def place(self, caller: str, limit: str) -> str:
        return "new" if self.version else "old"

    def refresh(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing is held."""


def test_an_answer_that_comes_after_the_bucket_was_placed_elsewhere_is_not_taken_in() -> None:
    """The new node is asked anew and takes that grant back: spent here as well, its tokens would be spent twice."""
    owners = _Moving()
    sink = RecordingSink()
    policy = make_policy(rate_per_s=1e-6, burst=BURST, timeouts={"ask_ms": 5_000})
    limiter = owners.limiter = Limiter(policy, owners, sink, new_identity("copy", unix_ms=1, pid=os.getpid()))
    sources = [limiter.check("acme").source for _ in range(20)]
    limiter.close()
    assert sources[0] is Source.SHARED, "the request waited at the new node"
    assert Source.DEGRADED not in sources
    bucket = owners.bucket.bucket("acme", "rate")
    assert bucket is not None
    assert round(bucket.tokens_micro / 1e6, 2) == BURST - 20
    assert sum(total.spent for total in sink.final_totals().values()) == 20


def _admitted(nodes: Mapping[str, Owner], callers: Sequence[str], *, life: int) -> Counter[str]:
    """What a gateway with this list of nodes admits of two bursts from each caller, and gives home when it ends."""
    policy = make_policy(rate_per_s=1e-6, burst=BURST, timeouts={"ask_ms": 5_000})
    identity = new_identity("copy", unix_ms=life, pid=os.getpid())
    limiter = Limiter(policy, Ring(nodes), RecordingSink(), identity)
    admitted = Counter({caller: sum(limiter.check(caller).allowed for _ in range(2 * BURST)) for caller in callers})
    limiter.close()
    return admitted


def test_a_node_more_on_the_ring_costs_one_burst_for_those_who_move_and_nothing_for_others() -> None:
    """Gateways are restarted with a longer list: about one caller in n starts full again, once."""
    nodes: dict[str, Owner] = {f"node-{n}": _Node(MemoryOwner(now_us=SystemClock().unix_us), int) for n in range(3)}
    callers = [f"caller-{n}" for n in range(24)]
    before = {name: nodes[name] for name in ("node-0", "node-1")}
    moved = {caller for caller in callers if Ring(nodes).place(caller, "rate") == "node-2"}
    assert 0 < len(moved) < len(callers) / 2
    first, second = _admitted(before, callers, life=1), _admitted(nodes, callers, life=2)
    assert set(first.values()) == {BURST}
    assert second == {caller: BURST if caller in moved else 0 for caller in callers}
