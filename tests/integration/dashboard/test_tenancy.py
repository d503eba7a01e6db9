"""R15: as tenant A, not one byte of tenant B, by any route, parameter, method or error."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import date

import httpx
import pytest
from starlette.routing import Mount, Route

from aggregator.sql import NamedQuery
from dashboard.app import create_app
from dashboard.sessions import COOKIE, Session, sign_session
from dashboard.store import CALLER, Limits, Record, RecordUnavailable
from tests.integration.dashboard.conftest import BASE, CANARY, NOW_US, SECRET, Desk

#: Every way of naming another caller that a client might try.
NAMES = ("caller", "key", "account", "tenant", "customer", "q", "id", "Caller", "user")
VALUES = {"from_s": 0, "to_s": NOW_US // 1_000_000 + 60, "step": 60, "rows": 100}
DAYS = {"first": date(1970, 1, 1), "last": date(2100, 1, 1), "partial": [date.fromtimestamp(NOW_US / 1e6 - 3_600)]}
QUARTERS = [NOW_US // 900_000_000 - back for back in range(8)]


def assert_nothing_of_b(answer: httpx.Response, *, said: str = "") -> None:
    """The canary's caller, plan, scope and copy all hold the same mark."""
    text = answer.text.replace(said, "") if said else answer.text
    assert "b7" not in text
    assert "b7" not in str(answer.headers)


@pytest.mark.parametrize("route", ["/usage", "/usage.json", "/usage.csv"])
@pytest.mark.parametrize("name", NAMES)
async def test_a_caller_in_the_address_is_a_page_that_is_not_there(
    customer: httpx.AsyncClient, route: str, name: str
) -> None:
    """The caller comes from the session; an address that names one is not half obeyed but refused."""
    answer = await customer.get(route, params={name: CANARY})
    assert 404 == answer.status_code
    assert_nothing_of_b(answer)


@pytest.mark.parametrize("route", ["/usage", "/usage.json", "/usage.csv", "/support", "/"])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_a_caller_in_the_body_is_a_page_that_is_not_there(
    customer: httpx.AsyncClient, route: str, method: str
) -> None:
    """Forms and JSON alike."""
    for body in ({"json": {"caller": CANARY}}, {"data": {"caller": CANARY}}):
        answer = await customer.request(method, route, **body)  # type: ignore[arg-type]  # one of two keyword arguments
        assert 404 == answer.status_code
        assert_nothing_of_b(answer)


async def test_every_route_shows_a_customer_nothing_of_another(desk: Desk, customer: httpx.AsyncClient) -> None:
    """The list is the application's own: a route that is added later is tested here without being named."""
    for route in create_app(desk.config).routes:
        if isinstance(route, Mount) or (isinstance(route, Route) and route.path == "/sign-out"):
            continue
        assert isinstance(route, Route)
        for span in ("", "?span=24h", "?span=7d", "?span=30d", f"?q={CANARY}", f"?token={CANARY}"):
            assert_nothing_of_b(await customer.get(route.path + span))


@pytest.mark.parametrize("header", ["x-account", "x-caller", "x-forwarded-user", "authorization"])
async def test_a_caller_in_a_header_changes_nothing(customer: httpx.AsyncClient, header: str) -> None:
    """The gateway's header means something to the gateway, nothing here."""
    answer = await customer.get("/usage.json", headers={header: CANARY})
    assert "acme" == answer.json()["caller"]
    assert_nothing_of_b(answer)


async def test_a_customer_is_not_support(customer: httpx.AsyncClient) -> None:
    """That there is a page for support is not told either."""
    answer = await customer.get("/support", params={"q": CANARY})
    assert 404 == answer.status_code
    assert_nothing_of_b(answer)


@pytest.mark.parametrize("route", ["/", "/usage", "/usage.json", "/usage.csv", "/support"])
@pytest.mark.parametrize(
    "cookie",
    [None, "", "junk", sign_session("another secret entirely!", Session("customer", CANARY))],
    ids=["absent", "empty", "junk", "forged"],  # a signature differs from second to second
)
async def test_without_a_session_no_query_runs(desk: Desk, route: str, cookie: str | None) -> None:
    """Expired, forged or missing: 401, and the record is not even asked (its address leads nowhere)."""
    app = create_app(desk.config, now_us=lambda: NOW_US)
    app.state.house.gate._record._run = None  # a query would fail loudly
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
        headers = {} if cookie is None else {"cookie": f"{COOKIE}={cookie}"}
        answer = await client.get(route, headers=headers)
    assert 401 == answer.status_code
    assert "sign-in link" in answer.text
    assert_nothing_of_b(answer)


@pytest.fixture
async def record(desk: Desk) -> AsyncIterator[Record]:
    """The reader below the pages."""
    found = Record(desk.config.clickhouse, Limits())
    yield found
    found.close()


async def test_a_query_that_forgot_its_condition_sees_only_its_caller(record: Record) -> None:
    """The fence is tested by a query without a WHERE, for each table that holds callers."""
    catalogue = dict(record._catalogue)
    tables = ("live", "decisions", "grants", "settlements", "quarter_days")
    for table in tables:
        catalogue[f"caller_open_{table}"] = _query(f"SELECT DISTINCT caller FROM {table} ORDER BY caller")
    record._catalogue = catalogue
    with record.of_caller("acme") as ask:
        for table in tables:
            assert [("acme",)] == list(ask(f"caller_open_{table}"))


async def test_a_query_bound_to_another_caller_sees_nothing(record: Record) -> None:
    """Even if the bound value came from a request, the fence is the session's."""
    record._catalogue = {
        **record._catalogue,
        "caller_other": _query("SELECT count() FROM live WHERE caller = {other:String}"),
    }
    with record.of_caller("acme") as ask:
        assert [(0,)] == list(ask("caller_other", other=CANARY))


async def test_every_query_as_a_shows_nothing_of_b_also_after_a_timeout(record: Record) -> None:
    """The whole catalogue, before and right after a query that was cut off for taking too long."""
    slow = "SELECT count() FROM numbers(100000000000) WHERE sipHash64(number) = 1"
    record._catalogue = {**record._catalogue, "caller_slow": _query(slow)}
    _assert_catalogue_fenced(record)
    record._limits = Limits(seconds=1)
    with pytest.raises(RecordUnavailable), record.of_caller(CANARY) as ask:
        ask("caller_slow")
    assert [] == record._free
    record._limits = Limits()
    _assert_catalogue_fenced(record)


def test_a_reader_of_one_kind_runs_no_query_of_another(record: Record) -> None:
    """A customer's page cannot reach support's queries by mistake of a name."""
    with record.of_caller("acme") as ask, pytest.raises(PermissionError):
        ask("support_callers", prefix="", rows=10)
    with record.of_fleet() as ask, pytest.raises(PermissionError):
        ask("caller_usage", **VALUES)
    with record.of_caller("acme") as ask, pytest.raises(PermissionError):
        ask("caller_no_such")


@pytest.mark.parametrize(
    "statement",
    ["INSERT INTO live (kind) VALUES ('usage')", "DROP TABLE live", "ALTER TABLE live DELETE WHERE 1",
     "SELECT 1 SETTINGS max_execution_time = 1000", "SELECT number FROM numbers(300000)"],
)  # fmt: skip
def test_limits_hold_and_nothing_is_written(record: Record, statement: str) -> None:
    """Read-only, bounded, and a handle that saw an error is not lent again."""
    record._catalogue = {**record._catalogue, "caller_bad": _query(statement)}
    with pytest.raises(RecordUnavailable), record.of_caller("acme") as ask:
        ask("caller_bad")
    assert [] == record._free


def _query(sql: str) -> NamedQuery:
    return NamedQuery("test", "A query of the test.", sql)


def _assert_catalogue_fenced(record: Record) -> None:
    names = [name for name in record._catalogue if name.startswith(f"{CALLER}_") and name != "caller_slow"]
    with record.of_caller("acme") as ask:
        for name in names:
            for every in (0, 1):
                told = {**VALUES, **DAYS, "live_from_s": 0, "every": every, "fresh": QUARTERS, "within": QUARTERS}
                rows = ask(name, **told, grant_ids=list(range(10)))
                assert "b7" not in repr(rows), name


def test_secrets_of_the_tests_are_long_enough() -> None:
    """Guards the fixtures: a short secret would make every session invalid and every test above vacuous."""
    assert len(SECRET) >= 16
