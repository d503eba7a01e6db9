"""Builds the dashboard: the only place where its parts are put together.

Opens no connection until a page is asked for.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from dashboard import formats
from dashboard.config import DashboardConfig
from dashboard.gate import Gate
from dashboard.signin import home, sign_in, sign_out, signed_out
from dashboard.store import Limits, Record, RecordUnavailable
from dashboard.support import support_page
from dashboard.usage import usage_csv, usage_json, usage_page
from dashboard.web import RETRY_S, House, NotFound, NotSignedIn, SecureHeaders, answer_error, house_of, message, zone_of
from enforcer.clock import SystemClock
from enforcer.errors import InvalidField

_log = logging.getLogger(__name__)
_STATIC = Path(__file__).parent / "static"


def create_app(
    config: DashboardConfig, *, limits: Limits | None = None, now_us: Callable[[], int] = SystemClock.unix_us
) -> Starlette:
    """The dashboard as an ASGI application.

    Args:
        config: where it reads and what it signs with.
        limits: what one query may take; the defaults of `Limits` if None.
        now_us: wall time in unix microseconds; every page says when "now" was.
    """
    limits = limits or Limits()
    record = Record(config.clickhouse, limits)
    gate = Gate(record, page_s=limits.page_s, now_us=now_us)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        gate.close()
        record.close()

    app = Starlette(
        routes=[
            Route("/", home, methods=["GET"]),
            Route("/usage", usage_page, methods=["GET"]),
            Route("/usage.json", usage_json, methods=["GET"]),
            Route("/usage.csv", usage_csv, methods=["GET"]),
            Route("/support", support_page, methods=["GET"]),
            Route("/sign-in", sign_in, methods=["GET"]),
            Route("/sign-out", sign_out, methods=["POST"]),
            Route("/signed-out", signed_out, methods=["GET"]),
            Route("/health", health, methods=["GET"]),
            Mount("/static", StaticFiles(directory=_STATIC)),
        ],
        middleware=[Middleware(SecureHeaders), Middleware(GZipMiddleware, minimum_size=1_000)],
        exception_handlers={
            NotSignedIn: answer_error,
            NotFound: answer_error,
            InvalidField: answer_error,
            HTTPException: _answer_http,
            RecordUnavailable: _answer_unavailable,
            Exception: _answer_unexpected,
        },
        lifespan=lifespan,
    )
    app.state.house = House(config, gate, now_us)
    return app


async def health(_: Request) -> Response:
    """``GET /health``: this process answers. Says nothing of the record: pages say that themselves."""
    return JSONResponse({"status": "ok"})


async def _answer_http(request: Request, _: Exception) -> Response:
    # Asking by another method is answered like asking for a page that is not there: nothing is told about what is.
    return await answer_error(request, NotFound())


async def _answer_unavailable(request: Request, error: Exception) -> Response:
    zone, now_us = zone_of(request), house_of(request).now_us()
    since_us = getattr(error, "since_us", None) or now_us
    since = f"{formats.moment(since_us, zone, now_us=now_us)} ({zone.key})"
    answer = message(
        request,
        status=503,
        title=f"The figures cannot be read right now, since {since}",
        text="Nothing is lost and the limiter goes on deciding; only this page cannot show it. "
        f"It tries again by itself every {RETRY_S} seconds.",
        hint="If this stays: ClickHouse is away, not set up yet, or too slow; the dashboard’s log says which.",
        live=True,
    )
    answer.headers["retry-after"] = str(RETRY_S)
    return answer


async def _answer_unexpected(request: Request, error: Exception) -> Response:
    _log.error("a page failed", exc_info=error)
    return message(
        request, status=500, title="This page failed", text="The fault is ours and is in the dashboard’s log.", hint=""
    )
