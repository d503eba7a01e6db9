"""What an erasure looks at: every column that names callers, and every row, whatever time a copy gave it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from aggregator.core.record.batches import decision_batches
from aggregator.core.record.facts import PlacedControl, PlacedFacts, control_batches, cost_batches, settlement_batches
from aggregator.core.record.letters import DeadLetter, dead_letter_batches
from aggregator.dead_letters.letters import LetterPlace, Mark, letters_at, mark
from aggregator.erasure import erasing, places
from aggregator.erasure.letters import Letters, letters_of
from aggregator.migrate import migrate
from aggregator.store_clickhouse import ClickHouseStore
from enforcer.identity import CopyIdentity
from enforcer.messages import SettleCause, Settlement
from enforcer.sink import CostChanged, GrantIssued, GrantSettled
from enforcer.types import Grant
from stream.contract.facts import FactBlock, decode_facts, encode_facts
from stream.contract.rewrite import encode_columns
from stream.contract.topics import DECISIONS, GRANTS
from tests.recordblocks import MIDNIGHT_US, Made, at, make_block

NAME = "acct-to-be-erased-0815"
#: Columns of text that name no caller, wherever they stand.
NOBODY = {
    "copy_id", "copies", "scope", "limit", "plan", "per", "kind", "topic", "log_id", "positions",
    "by", "requested_by", "reason", "tables",
}  # fmt: skip
#: Others that name none, and those that erasing reads in ways of their own: what letters and events say, and the name
#: while it is erased.
OF_THEIR_OWN = {
    ("migrations", "name"), ("migrations", "checksum"), ("settled_progress", "name"), ("control", "body"),
    ("decisions", "charges"), ("disagreements", "cause"), ("quarter_days", "names"),
    ("dead_letters", "key"), ("dead_letters", "payload"), ("erasing", "caller"),
}  # fmt: skip


@pytest.fixture
def store(database_dsn: str) -> Iterator[ClickHouseStore]:
    """A migrated database without rows."""
    migrate(database_dsn)
    with closing(ClickHouseStore.connect(database_dsn)) as handle:
        yield handle


def test_every_column_of_text_is_known_to_name_callers_or_not_to(store: ClickHouseStore) -> None:
    """A new column that names callers, under whatever name, must be one that erasing looks at."""
    known = {(place.table, name) for place in places.places(store) for name in place.names}
    columns = store.rows(
        "SELECT table, name FROM system.columns WHERE database = currentDatabase() AND type LIKE '%String%' "
        "AND type NOT LIKE '%FixedString%'"
    )
    assert {"caller", "name"} == {name for table, name in known if table == "signals"}
    assert [] == [one for one in columns if one not in known and one[1] not in NOBODY and one not in OF_THEIR_OWN]


def test_erasure_does_not_ask_the_clock_of_a_copy(store: ClickHouseStore) -> None:
    """A copy may be a year ahead: what it said before the erasure is the past all the same."""
    (now_us,) = store.rows("SELECT toUnixTimestamp64Micro(now64(6))")[0]
    ahead_us = now_us + 400 * 86_400_000_000
    total = Settlement(now_us + 1_000_000, 2, True, SettleCause.IDLE)
    facts = FactBlock(
        "gw-9",
        7,
        [],
        [GrantSettled(NAME, "rate", "gw-9/7", total, ahead_us)],
        [CostChanged(NAME, "/x", 1, 1, 0, ahead_us)],
    )
    event = PlacedControl("would_refuse", "gw-9", 7, ahead_us, json.dumps({"caller": NAME}), 0, 9)
    placed = [PlacedFacts(facts, 0, 1)]
    for batch in (*settlement_batches(placed), *cost_batches(placed), *control_batches([event])):
        store.insert(batch.table, batch.stamped(MIDNIGHT_US))
    one = erasing.erase(store, NAME, requested_by="privacy desk", reason="ticket 12", progress=lambda _: None)
    assert one is not None
    assert one.removed == {"settlements": 1, "cost_changes": 1, "control": 1}
    assert {} == places.counted(store, NAME)


def _block(*callers: str) -> bytes:
    block = make_block([Made(name) for name in callers])
    count = len(callers)
    return encode_columns(replace(block, version=3, admitted_total=count, refused_total=0, cost_total=count))


def test_letter_of_many_loses_the_caller_and_nobody_else(store: ClickHouseStore) -> None:
    """What others were granted and decided can still be given to the log again, and the name goes in the end."""
    grant, copy = Grant(MIDNIGHT_US, 5, 4, MIDNIGHT_US, MIDNIGHT_US + 9), CopyIdentity("gw-1", 7)
    issued = [GrantIssued(name, "rate", 3, grant, 0.5) for name in ("other-1", NAME, "other-2")]
    payloads = {
        (GRANTS.name, 1): encode_facts(copy, issued, []),
        (GRANTS.name, 2): encode_facts(copy, issued[1:2], []),
        (GRANTS.name, 3): encode_facts(copy, [GrantIssued(f"{NAME}-2", "rate", 3, grant, 0.5)], []),
        (DECISIONS.name, 4): _block(NAME, "other-1"),
        (DECISIONS.name, 5): _block(NAME),
    }
    rows = [
        DeadLetter(topic, 0, offset, MIDNIGHT_US, "too old", b"gw-1", it) for (topic, offset), it in payloads.items()
    ]
    for batch in dead_letter_batches(rows):
        store.insert(batch.table, batch.rows)
    assert Letters(named=3, shared=1, unread=0) == letters_of(store, NAME)

    def erase() -> None:
        erasing.erase(store, NAME, requested_by="privacy desk", reason="ticket 12", progress=lambda _: None)

    erase()
    (left,) = letters_at(store, LetterPlace(GRANTS.name, 0, 1))
    assert issued[::2] == decode_facts(left.payload).grants
    assert (b"gw-1", MIDNIGHT_US, "too old") == (left.key, left.seen_us, left.reason)
    places = "SELECT topic, log_offset, count() FROM dead_letters GROUP BY ALL ORDER BY ALL"
    assert [(DECISIONS.name, 4, 1), (GRANTS.name, 1, 1), (GRANTS.name, 3, 1)] == list(store.rows(places))
    assert Letters(named=0, shared=1, unread=0) == letters_of(store, NAME)

    (shared,) = letters_at(store, LetterPlace(DECISIONS.name, 0, 4))
    mark(store, shared, Mark(MIDNIGHT_US, "support", repaired=False, to_partition=0, to_offset=9))
    erase()
    assert [(GRANTS.name, 1, 1), (GRANTS.name, 3, 1)] == list(store.rows(places))


@pytest.mark.parametrize("name", ["", "two\nlines\x00", "x" * 300])
def test_caller_of_any_name_is_erased_and_what_is_nobodys_stays(store: ClickHouseStore, name: str) -> None:
    """Rows of the fleet, and positions of the log, say '' where others say a caller."""
    events = [
        PlacedControl("would_refuse", "gw-1", 7, MIDNIGHT_US, json.dumps({"caller": name}), 0, 1),
        PlacedControl("copy_started", "gw-1", 7, MIDNIGHT_US, "{}", 0, 2),
    ]
    for batch in (*decision_batches([at(make_block([Made(name), Made("acct-1")]), 0)]), *control_batches(events)):
        store.insert(batch.table, batch.rows)
    for table, column, rows in (
        ("live", "kind, caller, minute", "('usage', {n:String}, now()), ('fleet', '', now()), ('progress', '', now())"),
        (
            "signals",
            "kind, caller, name, place, minute",
            "('caller', {n:String}, '', 0, now()), ('caller', 'acct-1', '', 0, now()), "
            "('hot', '', {n:String}, 1, now()), ('hot', '', 'acct-1', 2, now()), ('fleet', '', '', 0, now())",
        ),
        ("disagreements", "kind, caller, minute", "('live', {n:String}, now()), ('too_late', '', now())"),
    ):
        store.command(f"INSERT INTO {table} ({column}) VALUES {rows}", {"n": name})
    one = erasing.erase(store, name, requested_by="privacy desk", reason="ticket 12", progress=lambda _: None)
    assert one is not None
    assert {"control": 1, "decisions": 1, "disagreements": 1, "live": 1, "signals": 2} == one.removed
    assert {} == places.counted(store, name)
    for table, left in {"control": 1, "decisions": 1, "disagreements": 1, "live": 2, "signals": 3}.items():
        assert [(left,)] == list(store.rows(f"SELECT count() FROM {table}")), table
