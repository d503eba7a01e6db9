"""A database that stands still is worse than one that is gone: nothing is refused, nothing is answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from dashboard.gate import PROBE_S
from dashboard.store import Limits, RecordUnavailable
from tallygate.engines.clickhouse import ClickHouse, start_clickhouse
from tests import seeding
from tests.integration.dashboard.conftest import ACME, NOW_US, Desk, browser, config_for
from tests.processes import freeze, thaw

#: No page takes longer than three seconds, however many are asked for; what is known already is said at once. Both with
#: room for a busy machine.
PAGE_S, AT_ONCE_S = 4.0, 2.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouse]:
    """A ClickHouse of this module's own, which its tests freeze."""
    running = start_clickhouse(tmp_path_factory.mktemp("frozen"))
    seeding.write(running.dsn, seeding.decide([ACME], now_us=NOW_US, minutes=5), late=[], stopped=[])
    yield running
    thaw(running.pid)
    running.stop()


@pytest.fixture
async def customer(server: ClickHouse) -> AsyncIterator[httpx.AsyncClient]:
    """Acme, signed in, with its page read once; thawed in the end."""
    config = config_for(server.dsn)
    async with browser(config, limits=Limits()) as client:
        await Desk(server.dsn, seeding.Seeded(0, []), config).sign_in(client, "customer", "acme")
        await _eventually_200(client)
        yield client
        thaw(server.pid)


async def _timed(client: httpx.AsyncClient, page: str) -> tuple[float, httpx.Response]:
    began_s = time.monotonic()
    answer = await client.get(page)
    return time.monotonic() - began_s, answer


async def _eventually_200(client: httpx.AsyncClient) -> None:
    for _ in range(150):
        if (await client.get("/usage")).status_code == 200:
            return
        await asyncio.sleep(0.1)
    pytest.fail("the page did not come back within 15 s")


async def test_fifty_pages_of_a_frozen_database_fail_together_and_the_next_ones_at_once(
    server: ClickHouse, customer: httpx.AsyncClient
) -> None:
    """The longest a reader waits for the words is three seconds; then it is known, until the database is back."""
    freeze(server.pid)
    first = await asyncio.gather(*(_timed(customer, "/usage") for _ in range(50)))
    assert {503} == {answer.status_code for _, answer in first}
    assert max(took_s for took_s, _ in first) < PAGE_S
    second = await asyncio.gather(*(_timed(customer, "/usage?zone=Europe/Berlin") for _ in range(50)))
    assert {503} == {answer.status_code for _, answer in second}
    assert max(took_s for took_s, _ in second) < AT_ONCE_S
    thaw(server.pid)
    await _eventually_200(customer)


async def test_one_page_at_a_time_finds_out_whether_it_is_back(server: ClickHouse, customer: httpx.AsyncClient) -> None:
    """After the pause one reader waits a second for all; the others have their answer while it does."""
    freeze(server.pid)
    assert 503 == (await customer.get("/usage")).status_code
    await asyncio.sleep(1.1)
    took_s = sorted([took_s for took_s, _ in await asyncio.gather(*(_timed(customer, "/usage") for _ in range(10)))])
    assert took_s[-1] < AT_ONCE_S
    assert took_s[-2] < PROBE_S


async def test_the_page_says_since_when_and_tries_again(server: ClickHouse, customer: httpx.AsyncClient) -> None:
    """The reader's question is: is it me, is it my traffic, and how long has this been so?"""
    freeze(server.pid)
    page = await customer.get("/usage?zone=Europe/Berlin")
    json = await customer.get("/usage.json")
    assert "The figures cannot be read right now, since 23:00:20 (Europe/Berlin)" in page.text
    assert 'data-live="4"' in page.text
    assert '<meta http-equiv="refresh" content="4">' in page.text
    assert "Nothing is lost" in page.text
    assert "4" == page.headers["retry-after"]
    assert (503, "application/json") == (json.status_code, json.headers["content-type"])
    assert "since 22:00:20 (UTC)" in json.json()["error"]["title"]


async def test_pages_that_wait_for_busy_readers_leave_the_door_open(server: ClickHouse) -> None:
    """A slow page is a 503 for its reader alone: the database answers the others."""
    config = config_for(server.dsn)
    async with browser(config) as client:
        gate = client._transport.app.state.house.gate  # type: ignore[attr-defined]  # the application under test
        gate._page_s = 0.3
        with pytest.raises(RecordUnavailable, match="did not answer within"):
            await gate.read(_answered_then_slow)
        await Desk(server.dsn, seeding.Seeded(0, []), config).sign_in(client, "customer", "acme")
        gate._page_s = 20
        assert 200 == (await client.get("/usage")).status_code


def _answered_then_slow(record: object) -> None:
    record._answered()  # type: ignore[attr-defined]  # as after a query
    time.sleep(0.6)
