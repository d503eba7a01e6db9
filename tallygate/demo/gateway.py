"""One gateway of the demonstration: an ordinary ASGI application behind Tallygate's middleware.

Run as ``python -m tallygate.demo.gateway --port P``, once a copy; all settings come from the environment.
"""

from __future__ import annotations

import argparse
import asyncio

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from enforcer import RateLimitMiddleware, build_limiter, from_header
from stream import kafka_sink

#: How long the pretended work of a request takes.
_WORK_S = 0.002


async def search(request: Request) -> JSONResponse:
    """Pretend to search."""
    await asyncio.sleep(_WORK_S)
    return JSONResponse({"found": [request.query_params.get("q", "")]})


async def order(request: Request) -> JSONResponse:
    """Pretend to fetch an order."""
    await asyncio.sleep(_WORK_S)
    return JSONResponse({"order": request.path_params["number"]})


async def report(_request: Request) -> JSONResponse:
    """Pretend to build a report."""
    await asyncio.sleep(_WORK_S)
    return JSONResponse({"report": "daily"})


def create_gateway() -> RateLimitMiddleware:
    """The application, limited by caller; the limiter starts and stops with the server."""
    routes = [Route("/search", search), Route("/orders/{number:int}", order), Route("/reports/daily", report)]
    return RateLimitMiddleware(
        Starlette(routes=routes), lambda: build_limiter(sink=kafka_sink), identify=from_header("x-account")
    )


def main() -> None:
    """Serve one copy until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m tallygate.demo.gateway")
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    uvicorn.run(create_gateway(), host="127.0.0.1", port=port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
