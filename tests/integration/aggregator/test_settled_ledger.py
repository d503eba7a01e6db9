"""The kept ledger on a real database: the same as counted afresh, whatever comes late, twice, or from a laggard."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest

from aggregator.audit import ledger
from aggregator.audit.counts.grants import kept_hours, ledger_hours
from aggregator.migrate import migrate
from aggregator.settler.passes.due import Due
from aggregator.settler.passes.ledger import Ledger
from aggregator.settler.passes.minutes import MinutesPass
from aggregator.store_clickhouse import ClickHouseStore
from aggregator.words import Span
from tests.property.aggregator.ledger_world import LedgerWorld
from tests.recordblocks import MIDNIGHT_US, Made, make_block
from tests.recordrows import record_blocks, record_control
from tests.unit.enforcer.harness import make_policy

MINUTE_US = 60_000_000
FIRST = MIDNIGHT_US // MINUTE_US
HOUR_LATER_US = MIDNIGHT_US + 90 * MINUTE_US


@pytest.fixture
def store(database_dsn: str) -> Iterator[ClickHouseStore]:
    """An empty record."""
    migrate(database_dsn)
    with closing(ClickHouseStore.connect(database_dsn)) as opened:
        yield opened


@pytest.fixture
def world() -> LedgerWorld:
    """Three minutes of a fleet whose requests pay two grants each, with a copy that is killed, a refund and a debt."""
    policy = make_policy(rate_per_s=20.0, burst=40, limits={"site": {"by": "everyone", "quota": 400, "per": "day"}})
    world = LedgerWorld(policy, copies=2, start_us=MIDNIGHT_US)
    for place in (0, 1, 0):
        for _ in range(15):
            world.alive[place].limiter.check("acme")
            world.alive[place].limiter.check("other")
        world.change(place, 0)
        world.wait(50)
    world.alive[1].limiter.check("acme", cost=3)
    world.change(1, 30)
    world.kill(1)
    world.end()
    return world


def settle(store: ClickHouseStore, *, version: int, at_us: int = HOUR_LATER_US) -> None:
    """What the settler does of these minutes at that position in the log."""
    MinutesPass([Ledger()]).settle(store, Due(range(FIRST, FIRST + 5), version, at_us))


def count(store: ClickHouseStore, table: str) -> int:
    """Rows of a table, merged or not."""
    return int(store.rows(f"SELECT count() FROM {table}")[0][0])


def test_kept_ledger_is_what_is_counted_afresh(store: ClickHouseStore, world: LedgerWorld) -> None:
    """The cheap read must be no other answer than the dear one."""
    world.record(store)
    settle(store, version=10)
    (kept,), (afresh,) = kept_hours(store, Span()), ledger_hours(store, Span())
    assert afresh == kept
    assert kept.agrees
    assert all((kept.spent, kept.returned, kept.credited, kept.outstanding, kept.adjusted)), kept
    assert kept_hours(store, Span(), "acme") == ledger_hours(store, Span(), "acme")
    rows = count(store, "ledger_hours")
    settle(store, version=11)
    assert rows == count(store, "ledger_hours"), "what has not changed is not written"


def test_late_facts_raise_the_version_and_a_laggard_loses(store: ClickHouseStore, world: LedgerWorld) -> None:
    """Hours are summed before everything has come; the one who has read further is right."""
    facts_of, world.lives = world.lives, world.lives[:1]
    world.record(store)
    settle(store, version=10)
    early = kept_hours(store, Span())
    world.lives = facts_of
    world.record(store)
    settle(store, version=20)
    assert early != kept_hours(store, Span()) == ledger_hours(store, Span())
    store.command("TRUNCATE TABLE settlements")
    settle(store, version=15)
    assert kept_hours(store, Span()) != ledger_hours(store, Span()), "a lower version changes nothing"


def test_hour_is_summed_again_when_its_grants_are_spent_of_late_or_settled_hours_later(store: ClickHouseStore) -> None:
    """Once summed for the last time, `--kept` said "outstanding" for good of what had long been returned."""
    hour = f"toDateTime64({MIDNIGHT_US // 10**6}, 6, 'UTC')"

    def at_minute(minutes: Sequence[int], now: int, version: int) -> None:
        due = [FIRST + minute for minute in minutes]
        MinutesPass([Ledger()]).settle(store, Due(due, version, MIDNIGHT_US + now * MINUTE_US))
        assert kept_hours(store, Span()) == ledger_hours(store, Span())

    store.command(
        "INSERT INTO grants (caller, limit, grant_id, size_tokens, issued_at, expires_at) "
        f"VALUES ('acme', 'rate', {MIDNIGHT_US + 3_599_000_000}, 50, {hour} + 3599, {hour} + 3660)"
    )
    at_minute([59], 60, 1)
    store.command(
        "INSERT INTO decisions (caller, limit, at, allowed, cost_tokens, grant_id) "
        f"VALUES ('acme', 'rate', {hour} + 3720, true, 7, {MIDNIGHT_US + 3_599_000_000})"
    )
    at_minute([62], 150, 2)
    assert 7 == kept_hours(store, Span())[0].spent
    store.command(
        "INSERT INTO settlements (caller, limit, grant_id, cause, final, spent_tokens, at) "
        f"VALUES ('acme', 'rate', {MIDNIGHT_US + 3_599_000_000}, 'expiry', true, 7, {hour} + 18180)"
    )
    at_minute([309], 310, 3)
    assert (43, 0) == (kept_hours(store, Span())[0].returned, kept_hours(store, Span())[0].outstanding)


def test_action_counts_afresh_as_far_as_it_can_or_reads_what_is_kept(
    store: ClickHouseStore, world: LedgerWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    """Raw decisions go first; what was summed of them stays, and is no guess."""
    parser = argparse.ArgumentParser()
    ledger.add_arguments(parser)
    world.record(store)
    settle(store, version=10)

    def told(*arguments: str, code: int = 0) -> list[str]:
        assert code == ledger.run(parser.parse_args(arguments), store)
        return capsys.readouterr().out.splitlines()

    afresh = told()
    assert "agrees: 231 tokens in 34 grants of all callers, all that is recorded" == afresh[0]
    assert told("--caller", "acme") == told("--caller", "acme", "--kept") != afresh
    store.command("INSERT INTO retention VALUES ('2026-01-03 00:00:00', 1, 1, 400, 10)")
    store.command("TRUNCATE TABLE decisions")
    nothing, *gone = told(code=3)
    assert nothing.startswith("cannot say: 0 tokens in 0 grants of all callers, from 20")
    assert all("are gone: they were kept no longer" in line for line in gone)
    assert afresh == told("--kept")


def test_missing_decisions_are_kept_by_minute_until_they_come(store: ClickHouseStore) -> None:
    """The pages say how much is missing without reading every block."""
    sealed = [
        make_block([Made()] * 3, first_seq=seq, sealed_at_us=MIDNIGHT_US + seq * 1_000_000) for seq in (0, 3, 6, 63)
    ]
    record_blocks(store, [sealed[0], sealed[2], sealed[3]])
    settle(store, version=10)
    current = (
        "SELECT toUnixTimestamp(minute) AS s, argMax(missing, version) FROM missing_minutes GROUP BY minute ORDER BY s"
    )
    assert [(MIDNIGHT_US // 10**6, 3), (MIDNIGHT_US // 10**6 + 60, 54)] == store.rows(current)
    record_blocks(store, [sealed[1]], first_offset=3)
    settle(store, version=20)
    settle(store, version=20)
    assert [(MIDNIGHT_US // 10**6, 0), (MIDNIGHT_US // 10**6 + 60, 54)] == store.rows(current)
    assert 3 == count(store, "missing_minutes")


_MISSING = (
    "SELECT intDiv(toUnixTimestamp(minute), 60) AS m, copy_id, argMax((missing, silent), version) FROM missing_minutes "
    "GROUP BY minute, copy_id ORDER BY m, copy_id"
)


def seal(store: ClickHouseStore, *blocks: tuple[int, int], copy_id: str = "gw-1") -> None:
    """Blocks of a copy that begin with a number, each sealed so many seconds after midnight."""
    made = [
        make_block([Made()] * 3, copy_id=copy_id, first_seq=seq, sealed_at_us=MIDNIGHT_US + at_s * 1_000_000)
        for seq, at_s in blocks
    ]
    record_blocks(store, made)


def test_hole_is_counted_however_long_its_copy_was_silent_before(store: ClickHouseStore) -> None:
    """The log was cut for two hours: what came an hour before says nothing of where the next block should begin."""
    seal(store, (0, -7_300), (3, -7_200), (500, 30), (503, 40))
    seal(store, (0, 20), (3, 30), copy_id="gw-2")
    seal(store, (40, 20), copy_id="gw-3")
    settle(store, version=10)
    assert [(FIRST, "gw-1", (494, 494)), (FIRST, "gw-3", (40, 40))] == store.rows(_MISSING)


def test_what_a_copy_lost_by_its_word_explains_nothing_of_anothers(store: ClickHouseStore) -> None:
    """A hundred lost by one copy that said so must not hide a hundred of another."""
    seal(store, (0, 1), (103, 2), copy_id="gw-1")
    seal(store, (0, 1), (103, 2), copy_id="gw-2")
    record_control(store, "decisions_lost", copy_id="gw-1", first_seq=3, count=60, cause="no room")
    record_control(store, "decisions_lost", copy_id="gw-1", first_seq=43, count=40, cause="no room")
    record_control(store, "decisions_lost", copy_id="gw-1", first_seq=200, count=50, cause="no room")
    settle(store, version=10)
    assert [(FIRST, "gw-1", (100, 20)), (FIRST, "gw-2", (100, 100))] == store.rows(_MISSING)
    record_control(store, "decisions_lost", copy_id="gw-2", first_seq=0, count=203, cause="no room")
    later = Due([FIRST + 69], 11, MIDNIGHT_US + 71 * MINUTE_US)
    MinutesPass([Ledger()]).settle(store, later)
    assert [(FIRST, "gw-1", (100, 20)), (FIRST, "gw-2", (100, 0))] == store.rows(_MISSING), "it was told later"
