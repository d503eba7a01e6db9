"""A fleet of real limiters on one owner, where copies are killed and asks get lost, and its record in tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from aggregator.core.record.facts import PlacedFacts, grant_batches, settlement_batches
from aggregator.store import Store
from enforcer.clock import ManualClock
from enforcer.errors import OwnerUnavailable
from enforcer.identity import CopyIdentity, new_identity
from enforcer.limiting.limiter import Limiter
from enforcer.messages import Answer, Ask, AskFault
from enforcer.owners.memory import MemoryOwner
from enforcer.policies.model import Policy
from enforcer.settings import LimiterSettings
from enforcer.sink import CostChanged
from enforcer.testing import RecordingSink
from enforcer.types import Verdict
from stream.contract.block import Totals
from stream.contract.codec import decode_block, encode_block, totals_of_verdicts
from stream.contract.facts import decode_facts, encode_facts
from tests.recordrows import insert, record_blocks


@dataclass
class Life:
    """One limiter from its start to its end, and all that it told its sink."""

    identity: CopyIdentity
    limiter: Limiter
    sink: RecordingSink
    changed: set[int] = field(default_factory=set)


class Wire:
    """One copy's way to the owner, on which asks and answers get lost when told to."""

    def __init__(self, owner: MemoryOwner) -> None:
        self._owner = owner
        self.loses: list[str] = []

    @property
    def address(self) -> str:
        """Where the owner is."""
        return self._owner.address

    def ask(self, asks: Sequence[Ask]) -> list[Answer | AskFault]:
        """Bring asks and answers, unless the next one is to be lost."""
        lost = self.loses.pop(0) if self.loses else ""
        if lost == "ask":
            raise OwnerUnavailable("the ask was lost", where="a test")
        answers = self._owner.ask(asks)
        if lost == "answer":
            raise OwnerUnavailable("the answer was lost", where="a test")
        return answers

    def probe(self) -> None:
        """Ask for nothing."""
        self._owner.probe()

    def close(self) -> None:
        """Leave the owner to the others."""


class LedgerWorld:
    """Copies on one clock and one owner. `lives` are all that ever were; `alive` those that still are, by place."""

    def __init__(self, policy: Policy, *, copies: int, start_us: int) -> None:
        self.clock = ManualClock(unix_us=start_us)
        self.owner = MemoryOwner(now_us=self.clock.unix_us)
        self.policy = policy
        self.lives: list[Life] = []
        self.wires = [Wire(self.owner) for _ in range(copies)]
        self.alive = [self._start(place) for place in range(copies)]
        self.killed = 0
        self.lost = 0

    def wait(self, seconds: float) -> None:
        """Let time pass; every quarter of a second the copies do their background work."""
        while seconds > 1e-9:
            step_s = min(0.25, seconds)
            self.clock.advance(step_s)
            seconds -= step_s
            for life in self.alive:
                life.limiter.tend()

    def kill(self, place: int) -> None:
        """End a copy as kill -9 does, and start its next life: what it had not told the owner is told to nobody."""
        self.killed += 1
        self.alive[place] = self._start(place)

    def lose(self, place: int, what: str) -> None:
        """The next exchange of a copy: its ``ask`` or its ``answer`` gets lost."""
        self.lost += 1
        self.wires[place].loses.append(what)

    def change(self, place: int, cost: int) -> None:
        """Charge or refund the last request that this copy admitted and that was not changed yet."""
        life = self.alive[place]
        for verdict in reversed(life.sink.verdicts):
            if verdict.allowed and verdict.cost != cost and verdict.seq not in life.changed:
                life.changed.add(verdict.seq)
                life.limiter.charge(verdict, cost)
                return

    def end(self) -> None:
        """Close what lives; then the grants of the dead expire, and the owner gives them back."""
        for wire in self.wires:
            wire.loses.clear()
        for life in self.alive:
            life.limiter.close()
        self.clock.advance(10)
        last = self._start(0)
        last.limiter.check("acme")
        last.limiter.close()

    def record(self, store: Store, *, block: int = 10) -> None:
        """Everything that the sinks took, over the log's own bytes, as rows: blocks of so many decisions, and facts."""
        blocks, placed = [], []
        for number, life in enumerate(self.lives):
            whose, sink = life.identity, life.sink
            before = Totals()
            for start in range(0, len(sink.verdicts), block):
                cut = sink.verdicts[start : start + block]
                blocks.append(decode_block(self._sealed(whose, cut, before)))
                before += totals_of_verdicts(cut)
            costs = [fact for fact in sink.events if isinstance(fact, CostChanged)]
            facts = encode_facts(whose, sink.grants, sink.settlements, costs)
            placed.append(PlacedFacts(decode_facts(facts), 0, number))
        record_blocks(store, blocks)
        insert(store, grant_batches(placed), settlement_batches(placed))

    def _sealed(self, whose: CopyIdentity, verdicts: list[Verdict], before: Totals) -> bytes:
        offset_ns = self.clock.unix_us() * 1_000 - self.clock.monotonic_ns()
        return encode_block(
            verdicts,
            copy_id=whose.copy_id,
            epoch=whose.epoch,
            first_seq=verdicts[0].seq,
            sealed_at_us=(verdicts[-1].at_ns + offset_ns) // 1_000 + 1,
            clock_offset_ns=offset_ns,
            before=before,
        )

    def _start(self, place: int) -> Life:
        identity = new_identity(f"copy-{place}", unix_ms=1_700_000_000_000 + len(self.lives), pid=place)
        sink = RecordingSink()
        settings = LimiterSettings(threaded=False, jitter=lambda: 0.5)
        limiter = Limiter(self.policy, self.wires[place], sink, identity, settings=settings, clock=self.clock)
        life = Life(identity, limiter, sink)
        self.lives.append(life)
        return life
