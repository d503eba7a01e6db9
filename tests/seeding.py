"""A record to look at: decisions of a few callers, with the live totals, grants and settlements that follow from them.

Everything is derived from one list of decisions made by one exact bucket per caller, so any two tables agree, as they
do behind a real fleet. Random numbers come from a seed; time is an argument.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import clickhouse_connect

from aggregator.config import parse_dsn
from aggregator.migrate import migrate
from enforcer.types import Reason, Source
from tests import seeding_rows
from tests.seeding_rows import MINUTE_US, epoch_of


@dataclass(frozen=True)
class CallerSeed:
    """What one caller does: `load` gives the requests of each minute, counted from the first."""

    name: str
    plan: str = "standard"
    rate_per_s: float = 5.0
    burst: int = 30
    scopes: tuple[tuple[str, float], ...] = (("POST /v1/charges", 6.0), ("GET /v1/charges/{id}", 3.0))
    copies: tuple[str, ...] = ("gw-1", "gw-2", "gw-3")
    load: Callable[[int], int] = lambda _: 120
    never_every: int = 0
    degraded_minutes: frozenset[int] = frozenset()


@dataclass(frozen=True)
class SeedDecision:
    """One decision, as a row of `decisions` and as a part of the totals."""

    caller: str
    at_us: int
    copy_id: str
    epoch: int
    seq: int
    scope: str
    plan: str
    allowed: bool
    source: Source
    reason: Reason
    cost: int
    remaining: int
    retry_after_ms: int
    grant_id: int
    k: int
    limit: str = "rate"
    policy_version: int = 41
    terms: tuple[float, int, str] = (0.0, 0, "")


@dataclass
class Seeded:
    """What was written, for tests to compare with what a page shows."""

    now_us: int
    seeds: list[CallerSeed]
    decisions: list[SeedDecision] = field(default_factory=list)

    def of(self, caller: str) -> list[SeedDecision]:
        """One caller's decisions, oldest first."""
        return [d for d in self.decisions if d.caller == caller]

    def refusals(self, caller: str) -> list[SeedDecision]:
        """One caller's refusals, newest first."""
        found = [d for d in self.of(caller) if not d.allowed]
        return sorted(found, key=lambda d: (d.at_us, d.copy_id, d.epoch, d.seq), reverse=True)


def decide(seeds: Sequence[CallerSeed], *, now_us: int, minutes: int, seed: int = 7) -> Seeded:
    """Make `minutes` of decisions up to `now_us`, by one exact bucket per caller."""
    rng = random.Random(seed)
    seqs: Counter[str] = Counter()
    first_us = now_us // MINUTE_US * MINUTE_US - (minutes - 1) * MINUTE_US
    arrivals: list[tuple[int, CallerSeed, int]] = []
    for caller in seeds:
        for minute in range(minutes):
            start_us = first_us + minute * MINUTE_US
            for _ in range(caller.load(minute)):
                at_us = start_us + rng.randrange(MINUTE_US)
                if at_us <= now_us:
                    arrivals.append((at_us, caller, minute))
    arrivals.sort(key=lambda arrival: arrival[0])
    buckets = {caller.name: (float(caller.burst), first_us) for caller in seeds}
    seeded = Seeded(now_us, list(seeds))
    for number, (at_us, caller, minute) in enumerate(arrivals):
        tokens, then_us = buckets[caller.name]
        tokens = min(float(caller.burst), tokens + (at_us - then_us) / 1e6 * caller.rate_per_s)
        never = caller.never_every and number % caller.never_every == 0
        cost = caller.burst * 5 if never else 1
        allowed = tokens >= cost
        buckets[caller.name] = (tokens - cost if allowed else tokens, at_us)
        copy_id = rng.choice(caller.copies)
        degraded = minute in caller.degraded_minutes
        reason = Reason.NONE if allowed else Reason.NEVER if never else Reason.EMERGENCY if degraded else Reason.SPENT
        wait_ms = 0 if allowed else -1 if never else max(1, round((cost - tokens) / caller.rate_per_s * 1000))
        seeded.decisions.append(
            SeedDecision(
                caller=caller.name,
                at_us=at_us,
                copy_id=copy_id,
                epoch=epoch_of(copy_id, now_us),
                seq=seqs[copy_id],
                scope=rng.choices([s for s, _ in caller.scopes], [w for _, w in caller.scopes])[0],
                plan=caller.plan,
                allowed=allowed,
                source=Source.DEGRADED if degraded else Source.LOCAL,
                reason=reason,
                cost=cost,
                remaining=int(tokens) if allowed else 0,
                retry_after_ms=wait_ms,
                grant_id=0 if degraded else at_us // 1_000_000 * 1_000_000 + len(caller.name),
                k=len(caller.copies),
            )
        )
        seqs[copy_id] += 1
    return seeded


def write(
    dsn: str, seeded: Seeded, *, late: Iterable[str] = (), stopped: Iterable[str] = (), awaited: Iterable[str] = ()
) -> None:
    """Write all tables of the record and the live totals.

    Copies in `late` were last heard 40 s before now; the totals of callers in `awaited` have not arrived.
    """
    migrate(dsn)
    place = parse_dsn(dsn)
    client = clickhouse_connect.get_client(
        host=place.host, port=place.port, username=place.user, password=place.password, database=place.database,
        autogenerate_session_id=False, dedicated_pool=True,
    )  # fmt: skip
    try:
        for table, rows in seeding_rows.tables(seeded, set(late), set(stopped), set(awaited)).items():
            alike: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
            for row in rows:
                alike[row.pop("_part", 0), *row].append(row)
            for (_, *names), part in alike.items():
                client.insert(table, [[row[name] for name in names] for row in part], column_names=names)
    finally:
        client.close()
