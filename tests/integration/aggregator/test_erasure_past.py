"""What an erasure takes for the past: what is on record, and nothing that a caller does later."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from aggregator.audit.counts.grants_count import count_grants
from aggregator.audit.proof.verify import verify
from aggregator.core.record.batches import decision_batches
from aggregator.core.record.blocks import block_batches
from aggregator.core.record.facts import PlacedFacts, grant_batches
from aggregator.core.record.journal import Stretch, journal_batch
from aggregator.erasure import erasing, places
from aggregator.erasure.known import erased
from aggregator.erasure.past import SKEW_US, past
from aggregator.migrate import migrate
from aggregator.store_clickhouse import ClickHouseStore
from aggregator.words import Span
from enforcer.sink import GrantIssued
from enforcer.types import Grant
from stream.contract.facts import FactBlock
from stream.contract.topics import DECISIONS, GRANTS
from tests.engine_files import files_with
from tests.recordblocks import Made, at, make_block
from tests.recordrows import erased_seqs
from tests.verifying import Copy, counts, record

NAME = "acct-to-be-erased-0815"


@pytest.fixture
def store(database_dsn: str) -> Iterator[ClickHouseStore]:
    """A migrated database without rows."""
    migrate(database_dsn)
    with closing(ClickHouseStore.connect(database_dsn)) as handle:
        yield handle


def test_erasure_of_a_caller_with_a_time_to_come_reaches_up_to_now_and_no_further(store: ClickHouseStore) -> None:
    """One forged time must not let the recorder throw away all that the caller does until then."""
    (now_us,) = store.rows("SELECT toUnixTimestamp64Micro(now64(6))")[0]
    ahead_us = now_us + 400 * 86_400_000_000
    lent = GrantIssued(NAME, "rate", 3, Grant(ahead_us, 5, 4, ahead_us, ahead_us + 9), 0.5)
    facts = FactBlock("gw-9", 7, [lent], [], [])
    soon_us = now_us + 3_600_000_000

    def store_at(offset: int, at_us: int, stored_us: int) -> None:
        placed = [at(make_block([Made(NAME, at_us), Made("acct-2", at_us)], first_seq=offset * 2), offset)]
        read = [Stretch("", name, 0, offset, offset + 1) for name in (DECISIONS.name, GRANTS.name)]
        journal = journal_batch(read, placed)
        granted = grant_batches([PlacedFacts(facts, 0, offset)])
        for batch in (*decision_batches(placed), *block_batches(placed), *granted, *journal):
            store.insert(batch.table, batch.stamped(stored_us))

    store_at(4, ahead_us, now_us - 1_000_000)
    one = erasing.erase(store, NAME, requested_by="privacy desk", reason="ticket 12", progress=lambda _: None)
    assert one is not None
    assert {"decisions": 1, "grants": 1} == one.removed
    assert {} == places.counted(store, NAME)
    assert [8] == erased_seqs(store, "gw-1", 7), "those to come are listed by their numbers"
    assert now_us <= one.erasure.erased_before_us <= one.begun_us + SKEW_US
    kept, gone = erased(store).sift([at(make_block([Made(NAME, soon_us)], first_seq=10), 5)])
    assert (1, []) == (len(kept), gone), "what it does since is recorded"
    store_at(5, soon_us, soon_us)
    of = past(store, one.erasure.erased_before_us)
    assert {} == places.counted(store, NAME, of), "and is no past, whenever one looks"
    assert {"decisions": 1, "grants": 1} == places.counted(store, NAME)


def test_name_goes_from_the_charges_of_others_too(store: ClickHouseStore, database_dsn: str) -> None:
    """Whose bucket paid stands in decisions of others: those stay, and verifying says what was taken out of them."""
    copy = Copy("gw-1")
    copy.live(4)
    record(store, database_dsn, copy)
    whole = store.rows("SELECT * EXCEPT (charges), charges.limit, charges.grant_id FROM decisions FINAL ORDER BY ALL")
    before = {one.caller for one in count_grants(store, Span(), None).faults}
    one = erasing.erase(store, "(everyone)", requested_by="privacy desk", reason="site", progress=lambda _: None)
    assert one is not None
    assert {"decisions.charges": 10} == one.removed
    assert [] == files_with(store, b"(everyone)")
    left = store.rows("SELECT * EXCEPT (charges), charges.limit, charges.grant_id FROM decisions FINAL ORDER BY ALL")
    assert whole == left, "nothing else of them differs"
    mark = f"erased:{one.name}"
    subjects = store.rows("SELECT DISTINCT charges.subject FROM decisions FINAL WHERE notEmpty(charges)")
    assert [[mark, "acct-1"]] == [list(names) for (names,) in subjects]
    assert "(everyone)" in before
    assert before - {"(everyone)"} == {one.caller for one in count_grants(store, Span(), None).faults}
    answer = verify(store, Span())
    assert answer.agrees, answer.text()
    assert {"lives": 1, "blocks": 4, "unnamed": 48} == counts(answer)
    assert "48 in blocks from whose charges a name was erased on request" in answer.summary
    store.command("TRUNCATE TABLE erasures")
    assert 4 == verify(store, Span()).facts["altered"], "a mark of no erasure excuses nothing"
