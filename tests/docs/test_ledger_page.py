"""The example on the page about the ledger, computed by the product from rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from aggregator.audit.counts.grants import ledger_hours
from aggregator.core.record.facts import PlacedFacts, grant_batches, settlement_batches
from aggregator.migrate import migrate
from aggregator.store_clickhouse import ClickHouseStore
from aggregator.words import Span
from enforcer.messages import SettleCause, Settlement
from enforcer.sink import GrantIssued, GrantSettled
from enforcer.types import Grant
from stream.contract.facts import FactBlock
from tests.recordblocks import MIDNIGHT_US, Made, make_block
from tests.recordrows import insert, record_blocks

_PAGE = Path(__file__).parents[2] / "docs" / "ledger.md"
_TERMS = ("granted", "spent", "returned", "credited", "outstanding", "given_back_and_spent")


@pytest.fixture
def store(database_dsn: str) -> Iterator[ClickHouseStore]:
    """An empty record."""
    migrate(database_dsn)
    with closing(ClickHouseStore.connect(database_dsn)) as opened:
        yield opened


def example() -> list[list[str]]:
    """The rows of the example, without the words in front."""
    lines = _PAGE.read_text("utf-8").partition("## An example")[2].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return [row[1:] for row in rows[2:]]


def facts(grant_id: int, row: list[str]) -> FactBlock:
    """What was said of one grant of the example."""
    size, _, final, adjusted, known, *_ = row
    grant = Grant(grant_id, int(size), 1, grant_id, grant_id + 5_000_000)
    totals = []
    if final:
        totals.append(Settlement(grant_id, int(final), True, SettleCause.ASK, adjusted=int(adjusted)))
    if known:
        totals.append(Settlement(grant_id, int(known), False, SettleCause.CREDITED))
    settled = [GrantSettled("acme", "rate", "gw-1/7", total, grant_id + 9) for total in totals]
    return FactBlock("gw-1", 7, [GrantIssued("acme", "rate", 1, grant, 0.0)], settled)


def test_every_number_of_the_example_is_what_the_ledger_says(store: ClickHouseStore) -> None:
    """Who disputes a bill reads this page: its numbers must be the product's."""
    *grants, whole = example()
    for number, row in enumerate(grants):
        grant_id = MIDNIGHT_US + number * 3_600_000_000
        placed = [PlacedFacts(facts(grant_id, row), 0, number)]
        insert(store, grant_batches(placed), settlement_batches(placed))
        made = Made(caller="acme", limit="rate", at_us=grant_id + 1, cost=int(row[1]), grant_id=grant_id)
        record_blocks(store, [make_block([made], first_seq=number)], first_offset=number)
    hours = ledger_hours(store, Span(), "acme")
    assert all(hour.agrees for hour in hours)
    found = [[getattr(hour, name) for name in _TERMS] for hour in hours]
    assert [[int(cell) for cell in row[5:]] for row in grants] == found
    assert [sum(int(row[place]) for row in grants) for place in (0, 1)] == [int(cell) for cell in whole[:2]]
    assert [int(cell) for cell in whole[5:]] == [sum(column) for column in zip(*found, strict=True)]
