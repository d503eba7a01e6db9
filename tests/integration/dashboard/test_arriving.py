"""The first seconds: the exact record has rows, the totals are late. No page may say what is not known."""

from __future__ import annotations

import httpx
import pytest

from aggregator.config import parse_dsn
from aggregator.store_clickhouse import ClickHouseStore
from dashboard.sessions import Role
from enforcer.types import Reason
from tests import seeding
from tests.integration.dashboard.conftest import NOW_US, Desk, browser, config_for
from tests.integration.dashboard.test_support import text_of
from tests.seeding import CallerSeed

DAHLIA = CallerSeed("dahlia", rate_per_s=0.5, burst=20, load=lambda minute: 200 if minute == 9 else 0)
CALM = CallerSeed("acme", load=lambda minute: 5 if minute == 9 else 0)


@pytest.fixture
def early(database_dsn: str) -> Desk:
    """Decisions of a minute, and not one row of totals yet."""
    seeded = seeding.decide([DAHLIA, CALM], now_us=NOW_US + 39_000_000, minutes=10)
    seeding.write(database_dsn, seeded)
    store = ClickHouseStore.open(parse_dsn(database_dsn))
    store.command("TRUNCATE TABLE live")
    store.close()
    return Desk(database_dsn, seeded, config_for(database_dsn))


async def opened(desk: Desk, address: str, role: Role, caller: str | None = None) -> httpx.Response:
    """One page, as somebody sees it."""
    async with browser(desk.config, NOW_US + 40_000_000) as client:
        await desk.sign_in(client, role, caller)
        return await client.get(address)


async def test_support_is_told_that_totals_arrive_and_gets_no_letter(early: Desk) -> None:
    """ "No caller dahlia" above fifty refusals of dahlia, and "sent 0 requests" in a letter: both were false."""
    assert 50 < len(early.seeded.refusals("dahlia"))
    answer = await opened(early, "/support?q=dahlia", "support")
    page = text_of(answer.text)
    assert "dahlia’s totals are still arriving : so far at least 50 requests in the last hour" in page
    assert "Totals are still arriving Its requests per minute are on their way." in page
    assert 50 == answer.text.count('<li id="r-')
    assert "Those that have arrived so far, newest first." in page
    assert "reply-text" not in answer.text
    for false in ("No caller", "no requests", "sent 0", "none of them", "All of them"):
        assert false not in page


async def test_a_caller_of_whom_only_admissions_are_recorded_is_known(early: Desk) -> None:
    """Neither refusals nor totals, but decided upon all the same."""
    assert Reason.NONE is early.seeded.of("acme")[0].reason
    page = text_of((await opened(early, "/support?q=acme", "support")).text)
    assert "acme’s totals are still arriving" in page
    assert "No caller is called exactly" in text_of((await opened(early, "/support?q=nobody", "support")).text)


async def test_a_customer_is_told_that_totals_arrive(early: Desk) -> None:
    """Not "You sent no requests" with a calm dot; the refusals that are here are shown."""
    answer = await opened(early, "/usage", "customer", "dahlia")
    page = text_of(answer.text)
    assert "Your totals are still arriving : so far at least 25 requests in the last hour" in page
    assert "no requests" not in page
    assert "Nothing was sent" not in page
    assert '<i class="dot late">' in answer.text
    assert 25 == answer.text.count('<tr id="r-')
    found = (await opened(early, "/usage.json", "customer", "dahlia")).json()
    assert found["totals_arriving"] is True


async def test_totals_that_have_arrived_are_said_as_before(desk: Desk) -> None:
    """The caution ends where its cause ends."""
    found = (await opened(desk, "/usage.json", "customer", "acme")).json()
    assert found["totals_arriving"] is False
    assert "arriving" not in (await opened(desk, "/support?q=acme", "support")).text
