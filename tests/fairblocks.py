"""Traffic written down, decided by a stand-in limiter, sealed into real blocks and recorded by the recorder's writer.

No log and no gateway: what a message would hold is handed to what reads messages. Time is an argument; nothing waits.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from aggregator.core.record.letters import DeadLetter
from aggregator.core.record.pending import Pending
from aggregator.recorder.dead_letters import DeadLetterTopic
from aggregator.recorder.writer import Writer
from aggregator.store import Store
from enforcer.identity import CopyIdentity
from enforcer.messages import SettleCause, Settlement
from enforcer.sink import GrantIssued, GrantSettled
from enforcer.types import Basis, Charge, Grant, Plan, Reason, Source, Standing, Terms, Verdict, outcome_code
from stream.contract.codec import NO_HASH, BlockEncoder, hash_block
from stream.contract.facts import encode_facts
from stream.contract.topics import DECISIONS, GRANTS

EPOCH = 7
#: 2026-10-05T22:00:00Z: a Monday night.
MONDAY_US = 1_791_237_600_000_000
ADMITTED = outcome_code(Source.LOCAL, Reason.NONE)
SPENT = outcome_code(Source.LOCAL, Reason.SPENT)
TEN = Plan("ten", 10.0, 20)
_BLOCK = 2_000
_PATIENCE_S = 60.0


@dataclass(frozen=True)
class Request:
    """One decision; `charged` names further limits that paid, with their subjects."""

    at_us: int
    copy: str = "gw-1"
    caller: str = "marlow"
    code: int = ADMITTED
    cost: int = 1
    retry_after_ms: int = 0
    limit: str = "rate"
    plan: Plan = TEN
    per: str = ""
    policy_version: int = 1
    grant_id: int = 0
    charged: tuple[tuple[str, str], ...] = ()


class _NoTopic(DeadLetterTopic):
    """Where nothing must arrive."""

    def __init__(self) -> None:
        self.sent: list[DeadLetter] = []

    def send(self, letters: Sequence[DeadLetter]) -> None:
        self.sent += letters


@dataclass
class Fleet:
    """The copies whose decisions are recorded; each numbers its own, from one recording to the next."""

    store: Store
    seqs: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    heads: dict[str, bytes] = field(default_factory=dict)
    offset: int = 0

    def record(self, requests: Iterable[Request], *, owner_offset_us: int | None = 0, ahead_us: int = 0) -> None:
        """Seal and store decisions; copies' clocks are `ahead_us` ahead, and the blocks say what the owner's are."""
        of_copy: dict[str, list[Request]] = defaultdict(list)
        for one in requests:
            of_copy[one.copy].append(one)
        flush = Pending()
        for copy, own in sorted(of_copy.items()):
            for start in range(0, len(own), _BLOCK):
                block = own[start : start + _BLOCK]
                data = self._seal(copy, block, owner_offset_us=owner_offset_us, ahead_us=ahead_us)
                appended_us = max(one.at_us for one in block) + 1_000_000
                reason = flush.take(
                    DECISIONS.name, 0, self.offset, key=copy.encode(), value=data, seen_at_us=0, appended_us=appended_us
                )
                assert reason is None
                self.offset += 1
        self._write(flush)

    def lend(self, copy: str, grants: Iterable[Grant], settled: Iterable[tuple[int, int, int]] = ()) -> None:
        """Record grants of marlow's rate, and final settlements (grant id, spent, when)."""
        issued = [GrantIssued("marlow", "rate", 1, grant, 0.0) for grant in grants]
        stated = [
            GrantSettled("marlow", "rate", f"{copy}/{EPOCH}", Settlement(number, spent, True, SettleCause.ASK), at_us)
            for number, spent, at_us in settled
        ]
        flush = Pending()
        data = encode_facts(CopyIdentity(copy, EPOCH), issued, stated)
        assert flush.take(GRANTS.name, 0, self.offset, key=b"marlow", value=data, seen_at_us=0) is None
        self.offset += 1
        self._write(flush)

    def _write(self, flush: Pending) -> None:
        writer = Writer(lambda: self.store, _NoTopic(), logging.getLogger("fleet"), unix_us=lambda: 0)
        writer.start(flush)
        assert writer.wait(_PATIENCE_S)
        assert writer.take_written() is flush

    def _seal(self, copy: str, block: Sequence[Request], *, owner_offset_us: int | None, ahead_us: int) -> bytes:
        first = self.seqs[copy]
        bases: dict[Request, Basis] = {}
        verdicts = []
        for place, one in enumerate(block):
            key = Request(0, copy, one.caller, limit=one.limit, plan=one.plan, per=one.per,
                          policy_version=one.policy_version, grant_id=one.grant_id, charged=one.charged)  # fmt: skip
            basis = bases.setdefault(key, _basis(one))
            at_ns = one.at_us * 1_000
            ready_ns = at_ns + one.retry_after_ms * 1_000_000 if one.retry_after_ms > 0 else one.retry_after_ms
            verdicts.append(Verdict(first + place, at_ns, basis, one.code & 15 == 0, one.code, one.cost, 0, ready_ns))
        sealed_us = max(one.at_us for one in block) + 1_000
        data = BlockEncoder().encode(
            verdicts,
            copy_id=copy,
            epoch=EPOCH,
            first_seq=first,
            sealed_at_us=sealed_us + ahead_us,
            clock_offset_ns=ahead_us * 1_000,
            prev_hash=self.heads.get(copy, NO_HASH),
            owner_offset_us=None if owner_offset_us is None else owner_offset_us - ahead_us,
        )
        self.heads[copy] = hash_block(data)
        self.seqs[copy] = first + len(block)
        return data


def _basis(one: Request) -> Basis:
    terms = Terms(one.limit, one.plan, one.policy_version, one.per)
    also = tuple(Charge(subject, limit, 0) for subject, limit in one.charged)
    return Basis(Standing(one.caller, terms), "GET /stock/{isbn}", one.grant_id, 1, also)


def connected(connections: int, *, copies: int = 48) -> list[int]:
    """The copy that each connection stays with: drawn so that twelve reach twelve, and 120 all but four, as then."""
    state, drawn = 11_000 + connections, []
    for _ in range(connections):
        state = (state * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407) % (1 << 64)
        drawn.append((state >> 33) % copies)
    return drawn


def in_turns(copies: Sequence[int], *, rate_per_s: float, start_us: int, seconds: int) -> list[tuple[int, int]]:
    """Requests at a steady rate, each on the next connection: when, and at which copy."""
    return [
        (start_us + round(number * 1e6 / rate_per_s), copies[number % len(copies)])
        for number in range(round(rate_per_s * seconds))
    ]


def divided_with_floor(
    arrivals: Sequence[tuple[int, int]], *, copies: int = 48, floor_per_s: float = 1.0
) -> list[Request]:
    """The limiter of the founding lesson: each copy has the plan divided by the copies, or a floor of one a second."""
    per_copy = max(floor_per_s, TEN.rate_per_s / copies)
    tokens, before = [1.0] * copies, [arrivals[0][0]] * copies
    requests = []
    for at_us, copy in arrivals:
        tokens[copy] = min(1.0, tokens[copy] + per_copy * (at_us - before[copy]) / 1e6)
        before[copy] = at_us
        allowed = tokens[copy] >= 1.0 - 1e-6
        tokens[copy] -= allowed
        wait_ms = 0 if allowed else math.ceil((1.0 - tokens[copy]) / per_copy * 1e3)
        code = ADMITTED if allowed else SPENT
        requests.append(Request(at_us, f"gw-{copy:02d}", code=code, retry_after_ms=wait_ms))
    return requests
