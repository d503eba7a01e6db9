"""The pages as a browser sees them: a seeded record, the dashboard on a port, headless Chromium."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn

from aggregator.config import parse_dsn
from aggregator.store_clickhouse import ClickHouseStore
from dashboard.app import create_app
from dashboard.config import DashboardConfig
from dashboard.links import sign_in_link
from dashboard.serve import bind
from dashboard.sessions import Role
from dashboard.store import Limits
from tests import seeding
from tests.seeding import CallerSeed, Seeded

SECRET = "a secret of the tests, long enough"
ARTIFACTS = Path(__file__).resolve().parents[3] / "artifacts" / "pages"

ACME = CallerSeed(
    "acme",
    scopes=(
        ("POST /v1/charges", 6.0),
        ("GET /v1/charges/{id}", 3.0),
        ("POST /v1/refunds", 1.0),
        ("GET /v1/events", 2.0),
    ),
    copies=tuple(f"gw-{number:02d}" for number in range(1, 13)),
    load=lambda minute: 400 if minute in (21, 22, 23, 47, 48) else 90 + 3 * (minute % 20),
    never_every=900,
    degraded_minutes=frozenset({33, 34}),
)
INITECH = CallerSeed("initech", load=lambda _: 0)
#: Its decisions are on record, its totals are not yet.
DAHLIA = CallerSeed(
    "dahlia", rate_per_s=0.5, burst=20, scopes=(("GET /orders/{number}", 1.0),),
    load=lambda minute: 120 if minute > 57 else 0,
)  # fmt: skip


@dataclass
class Site:
    """A dashboard that is served, and what is behind it."""

    base: str
    store: ClickHouseStore
    seeded: Seeded
    app: Any

    def link(self, role: Role, caller: str | None = None) -> str:
        """A sign-in link."""
        return sign_in_link(self.base, SECRET, role, caller)

    def add(self, requests: int, *, scope: str = "GET /v1/added", admitted: int = 0) -> None:
        """More requests of acme in this minute, written as the worker would."""
        minute_s, refused = int(time.time()) // 60 * 60, requests - admitted
        self.store.command(
            "INSERT INTO live (kind, caller, minute, scope, log_partition, version, offered, admitted, refused_spent) "
            f"VALUES ('usage', 'acme', {minute_s}, '{scope}', 0, {requests}, {requests}, {admitted}, {refused})"
        )


def _settle_late(dsn: str) -> None:
    """A settler that is five minutes behind."""
    store, minute = ClickHouseStore.open(parse_dsn(dsn)), int(time.time()) // 60
    store.command(f"INSERT INTO settled_progress VALUES ('settler', 1, now64(6), [], [{minute - 6}, {minute}], [], [])")
    store.close()


@pytest.fixture(scope="module")
def site(clickhouse_dsn: str) -> Iterator[Site]:
    """An hour of acme up to now, served on a free port."""
    name = f"browser_{uuid.uuid4().hex[:12]}"
    dsn = urlsplit(clickhouse_dsn)._replace(path=f"/{name}").geturl()
    seeded = seeding.decide([ACME, INITECH, DAHLIA], now_us=time.time_ns() // 1_000, minutes=60)
    seeding.write(dsn, seeded, late=["gw-03"], awaited=["dahlia"])
    _settle_late(dsn)
    config = DashboardConfig.from_env({"TALLYGATE_SECRET": SECRET, "TALLYGATE_CLICKHOUSE": dsn})
    # The machine of the tests may be busy.
    app = create_app(config, limits=Limits(seconds=8, page_s=9))
    listener = bind("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    store = ClickHouseStore.open(parse_dsn(dsn))
    yield Site(f"http://127.0.0.1:{listener.getsockname()[1]}", store, seeded, app)
    server.should_exit = True
    thread.join(timeout=20)
    listener.close()
    store.command(f"DROP DATABASE IF EXISTS {name} SYNC")
    store.close()
