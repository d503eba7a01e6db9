"""One seeded record for the module, and the dashboard on it, asked without a network."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx
import pytest

from aggregator.config import parse_dsn
from aggregator.store_clickhouse import ClickHouseStore
from dashboard.app import create_app
from dashboard.config import DashboardConfig
from dashboard.links import sign_in_link
from dashboard.sessions import Role
from dashboard.store import Limits
from tests import seeding
from tests.seeding import CallerSeed, Seeded

SECRET = "a secret of the tests, long enough"
BASE = "http://dashboard.test"
NOW_US = 1_795_989_620_000_000
#: The machine of the tests may be busy.
PATIENT = Limits(seconds=15, page_s=20)
CANARY = "canary-b7"

ACME = CallerSeed(
    "acme",
    copies=("gw-1", "gw-2", "gw-3", "gw-4"),
    load=lambda minute: 460 if minute in (5, 6) else 90,
    never_every=700,
    degraded_minutes=frozenset({3}),
)
OTHER = CallerSeed(
    CANARY,
    plan="canary-plan-b7",
    rate_per_s=1.0,
    burst=5,
    scopes=(("POST /canary-scope-b7", 1.0),),
    copies=("canary-copy-b7",),
    load=lambda _: 100,
)
IDLE = CallerSeed("initech", load=lambda _: 0)


def config_for(dsn: str) -> DashboardConfig:
    """Settings of a dashboard on that database."""
    return DashboardConfig.from_env({"TALLYGATE_SECRET": SECRET, "TALLYGATE_CLICKHOUSE": dsn})


def browser(config: DashboardConfig, now_us: int = NOW_US, *, limits: Limits = PATIENT) -> httpx.AsyncClient:
    """Someone who opens pages; each has cookies of their own."""
    app = create_app(config, limits=limits, now_us=lambda: now_us)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url=BASE, follow_redirects=False)


@dataclass(frozen=True)
class Desk:
    """A seeded record and the way to look at it."""

    dsn: str
    seeded: Seeded
    config: DashboardConfig

    async def sign_in(self, client: httpx.AsyncClient, role: Role, caller: str | None = None) -> None:
        """Open a sign-in link."""
        link = sign_in_link(BASE, SECRET, role, caller)
        answer = await client.get(link)
        assert 303 == answer.status_code


@pytest.fixture(scope="module")
def desk(clickhouse_dsn: str) -> Iterator[Desk]:
    """Ten minutes of three callers, one of which is the canary that nobody else may see."""
    name = f"pages_{uuid.uuid4().hex[:12]}"
    dsn = urlsplit(clickhouse_dsn)._replace(path=f"/{name}").geturl()
    seeded = seeding.decide([ACME, OTHER, IDLE], now_us=NOW_US, minutes=10)
    seeding.write(dsn, seeded, late=["gw-4"], stopped=["gw-9"])
    with closing(ClickHouseStore.open(parse_dsn(dsn))) as store:
        store.command(
            "INSERT INTO quarters (kind, caller, quarter, scope, offered) "
            f"SELECT 'usage', '{CANARY}', toDateTime({NOW_US // 1_000_000 - 3_600}, 'UTC'), 'POST /canary-scope-b7', 7"
        )
        store.command(
            "INSERT INTO quarter_days (kind, caller, day, scope, at, names, numbers) "
            f"SELECT 'usage', arrayJoin(['{CANARY}', 'acme']) AS caller, "
            f"toDate(toDateTime({NOW_US // 1_000_000 - 3_600}, 'UTC')), "
            "if(caller = 'acme', 'GET /', 'POST /canary-scope-b7'), [1], ['offered'], [7]"
        )
    yield Desk(dsn, seeded, config_for(dsn))
    server = ClickHouseStore.open(parse_dsn(clickhouse_dsn))
    server.command(f"DROP DATABASE IF EXISTS {name} SYNC")
    server.close()


@pytest.fixture
async def visitor(desk: Desk) -> AsyncIterator[httpx.AsyncClient]:
    """Someone without a session."""
    async with browser(desk.config) as client:
        yield client


@pytest.fixture
async def customer(desk: Desk, visitor: httpx.AsyncClient) -> httpx.AsyncClient:
    """Acme, signed in."""
    await desk.sign_in(visitor, "customer", "acme")
    return visitor


@pytest.fixture
async def support(desk: Desk, visitor: httpx.AsyncClient) -> httpx.AsyncClient:
    """Support, signed in."""
    await desk.sign_in(visitor, "support")
    return visitor
