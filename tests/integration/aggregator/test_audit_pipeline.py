"""The whole way from limiters to the audits: real sinks, a real broker, a recorder as a process, a real database."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

from aggregator.audit import gaps
from aggregator.audit.counts.grants import ledger_hours
from aggregator.audit.counts.reconcile import compare
from aggregator.store_clickhouse import ClickHouseStore
from aggregator.words import Span
from enforcer.clock import SystemClock
from enforcer.identity import new_identity
from enforcer.limiting.limiter import Limiter
from enforcer.owners.memory import MemoryOwner
from enforcer.settings import LimiterSettings
from enforcer.sink import GrantIssued
from stream.config import StreamConfig
from stream.producer import KafkaSink
from tests.integration.aggregator.recording import PARTITIONS, recording
from tests.processes import wait_until
from tests.services import KafkaService
from tests.unit.enforcer.harness import make_policy

COPIES, ROUNDS, CALLERS = 3, 120, 5


def serve(bootstrap: str) -> tuple[int, int]:
    """A fleet that admits, refuses, charges and refunds, and closes; how many decisions it made, on how many grants."""
    clock, made, issued = SystemClock(), 0, 0
    owner = MemoryOwner(now_us=clock.unix_us)
    policy = make_policy(
        rate_per_s=20, burst=60, limits={"site": {"by": "everyone", "rate_per_s": 1_000, "burst": 2_000}}
    )
    for number in range(COPIES):
        identity = new_identity(f"gw-{number}", unix_ms=clock.unix_us() // 1_000, pid=os.getpid())
        # Blocks are cut by their size alone, however slow the machine is.
        config = StreamConfig(bootstrap=bootstrap, partitions=PARTITIONS, block_decisions=100, flush_s=60)
        sink = _CountingSink(config, identity)
        limiter = Limiter(policy, _Shared(owner), sink, identity, settings=LimiterSettings(), clock=clock)
        for turn in range(ROUNDS):
            for caller in range(CALLERS):
                verdict = limiter.check(f"acct-{caller}")
                made += 1
                if verdict.allowed and turn % 10 == 0:
                    limiter.charge(verdict, caller)
        limiter.close()
        issued += sink.issued
    return made, issued


class _CountingSink(KafkaSink):
    """Knows how many grants it was told of."""

    issued = 0

    def grant_issued(self, fact: GrantIssued) -> None:
        self.issued += 1
        super().grant_issued(fact)


class _Shared(MemoryOwner):
    """A copy's own handle on the fleet's owner."""

    def __init__(self, owner: MemoryOwner) -> None:
        self.__dict__ = owner.__dict__

    def close(self) -> None:
        """Leave the owner to the others."""


def test_fleet_through_the_whole_pipeline_agrees_and_each_fault_is_named(
    embedded_broker: KafkaService, database_dsn: str, tmp_path: Path
) -> None:
    """R20: what limiters decided, through sinks, log and recorder, adds up; and what is then done to it is found."""
    with (
        recording(embedded_broker.bootstrap, database_dsn, tmp_path) as log,
        closing(ClickHouseStore.connect(database_dsn)) as store,
    ):
        made, issued = serve(embedded_broker.bootstrap)
        log.start()
        log.wait_for(made)
        stopped = "SELECT count() FROM control FINAL WHERE kind = 'copy_stopped'"
        wait_until(lambda: log.number(stopped) == COPIES, 60, what="every copy's last word", poll_s=0.2)
        settled = "SELECT least(count(), (SELECT count() FROM grants FINAL)) FROM settlements FINAL WHERE final"
        wait_until(lambda: log.number(settled) == issued, 60, what="every grant and its total", poll_s=0.2)
        missing, counted, hours = gaps.find(store, Span()), compare(store, Span()), ledger_hours(store, Span())
        assert [] == missing.findings, missing.text()
        assert counted.agrees, counted.text()
        blocks = counted.facts["blocks"]
        assert isinstance(blocks, dict)
        assert (made, made, made) == (blocks["rows"], blocks["said"], blocks["totals"])
        assert all(hour.agrees for hour in hours)
        assert sum(hour.granted for hour in hours) == sum(hour.spent + hour.returned for hour in hours) > 0

        store.command("DELETE FROM decisions WHERE copy_id = 'gw-0' AND seq = 7")
        assert "on record are 99: rows were removed" in compare(store, Span()).text()
        store.command(
            "INSERT INTO settlements SELECT * REPLACE (spent_tokens + 1 AS spent_tokens) FROM settlements "
            "WHERE final AND copy_id = 'gw-1' LIMIT 1"
        )
        assert "2 final totals are stated" in compare(store, Span()).text()
        store.command("DELETE FROM blocks WHERE copy_id = 'gw-2' AND first_seq = 100")
        assert "100 rows of no block: the next block was removed" in compare(store, Span()).text()
        assert "missing without a loss record: 100 to 199" in gaps.find(store, Span()).text()
