"""ClickHouse away, empty or slow: the page says so, and nothing of the inside is shown."""

from __future__ import annotations

import asyncio
import dataclasses
import socket

import httpx
import pytest

from tests.integration.dashboard.conftest import Desk, browser, config_for
from tests.seeding import Seeded


@pytest.fixture
def nowhere() -> str:
    """An address at which nobody listens."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        return f"http://user:hidden-password@127.0.0.1:{closed.getsockname()[1]}/tallygate"


@pytest.mark.parametrize(
    ("role", "caller", "page"), [("customer", "acme", "/usage"), ("support", None, "/support?q=acme")]
)
async def test_a_record_that_is_away_is_a_page_with_503(
    nowhere: str, role: str, caller: str | None, page: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Not a traceback: what fails, what does not, and that it will try again; the cause is in the log."""
    config = config_for(nowhere)
    async with browser(config) as client:
        await Desk(nowhere, Seeded(0, []), config).sign_in(client, role, caller)  # type: ignore[arg-type]  # a role
        answer = await client.get(page)
    assert 503 == answer.status_code
    assert "The figures cannot be read right now, since " in answer.text
    assert "data-live" in answer.text
    assert "Traceback" not in answer.text
    assert "127.0.0.1" not in answer.text
    assert "does not answer" in caplog.text
    assert "hidden-password" not in caplog.text


async def test_a_database_without_tables_says_what_to_do_in_the_log(
    database_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The first start, before the migrations."""
    config = config_for(database_dsn)
    async with browser(config) as client:
        await Desk(database_dsn, Seeded(0, []), config).sign_in(client, "customer", "acme")
        json = await client.get("/usage.json")
        csv = await client.get("/usage.csv")
    assert (503, 503) == (json.status_code, csv.status_code)
    assert 503 == json.json()["error"]["status"]
    assert "tallygate migrate" in caplog.text


async def test_a_record_that_comes_back_is_read_again(desk: Desk) -> None:
    """No restart is needed, and no handle from before is used: the next probe finds it, a second later."""
    async with browser(desk.config) as client:
        await desk.sign_in(client, "customer", "acme")
        record = client._transport.app.state.house.gate._record  # type: ignore[attr-defined]  # the application under test
        good, record._dsn = record._dsn, config_for("http://127.0.0.1:1/gone").clickhouse
        assert 503 == (await client.get("/usage")).status_code
        record._dsn = good
        for _ in range(150):
            await asyncio.sleep(0.1)
            if (await client.get("/usage")).status_code == 200:
                return
    pytest.fail("the page did not come back within 15 s")


async def test_an_answer_that_is_an_error_is_not_away(desk: Desk) -> None:
    """A wrong password is told by somebody: each page says so at once, and the next one after it is corrected works."""
    async with browser(desk.config) as client:
        await desk.sign_in(client, "customer", "acme")
        record = client._transport.app.state.house.gate._record  # type: ignore[attr-defined]  # the application under test
        good, record._dsn = record._dsn, dataclasses.replace(record._dsn, user="nobody-b7", password="wrong")
        assert 503 == (await client.get("/usage")).status_code
        record._dsn = good
        assert 200 == (await client.get("/usage")).status_code


async def test_health_does_not_ask_the_record(nowhere: str) -> None:
    """A watcher that restarts the dashboard because ClickHouse is away helps nobody."""
    async with browser(config_for(nowhere)) as client:
        assert {"status": "ok"} == (await client.get("/health")).json()


async def test_a_fault_of_ours_shows_nothing_of_the_inside(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The unexpected has a page too."""

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("secret inside")

    monkeypatch.setattr("dashboard.usage.read_caller", broken)
    async with browser(desk.config) as client:
        await desk.sign_in(client, "customer", "acme")
        answer: httpx.Response = await client.get("/usage")
    assert 500 == answer.status_code
    assert "This page failed" in answer.text
    assert "secret inside" not in answer.text
