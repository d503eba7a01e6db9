"""Real applications of four frameworks behind the middlewares, by the frameworks' own test clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import django
import httpx
import pytest
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import path
from fastapi import APIRouter, FastAPI
from flask import Flask, Response
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Mount, Route

from enforcer.http.asgi import RateLimitMiddleware
from enforcer.http.wsgi import RateLimitWSGIMiddleware
from tests.unit.enforcer.harness import Fleet, make_policy

ROUTES: dict[str, dict[str, object]] = {"GET /api/items/{id}": {}, "GET /api/stream": {}, "GET /api/fail": {}}


def _parts() -> Iterator[str]:
    yield from ("a", "b", "c")


def _flask() -> Any:
    app = Flask("tried")
    app.add_url_rule("/api/items/<name>", view_func=lambda name: name, endpoint="item")
    app.add_url_rule("/api/stream", view_func=lambda: Response(_parts()), endpoint="stream")
    app.add_url_rule("/api/fail", view_func=lambda: str(1 // 0), endpoint="fail")
    return app


def _starlette() -> Any:
    routes = [
        Route("/items/{id}", lambda request: PlainTextResponse(request.path_params["id"])),
        Route("/stream", lambda _: StreamingResponse(_parts())),
        Route("/fail", lambda _: PlainTextResponse(str(1 // 0))),
    ]
    return Starlette(routes=[Mount("/api", Starlette(routes=routes))])


def _named(name: str) -> PlainTextResponse:
    return PlainTextResponse(name)


def _fastapi() -> Any:
    router = APIRouter(prefix="/api")
    router.add_api_route("/items/{name}", _named)
    router.add_api_route("/stream", lambda: StreamingResponse(_parts()))
    router.add_api_route("/fail", lambda: 1 // 0)
    app = FastAPI()
    app.include_router(router)
    return app


def _item(_request: HttpRequest, name: str) -> HttpResponse:
    return HttpResponse(name)


def _stream(_request: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse(_parts())


def _fail(_request: HttpRequest) -> HttpResponse:
    return HttpResponse(1 // 0)


urlpatterns = [path("api/items/<name>", _item), path("api/stream", _stream), path("api/fail", _fail)]


def _django(handler: Callable[[], Any]) -> Any:
    if not settings.configured:
        settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="only-for-tests", LOGGING_CONFIG=None)
        django.setup()
    return handler()


WSGI: dict[str, Callable[[], Any]] = {"flask": _flask, "django": lambda: _django(WSGIHandler)}
ASGI: dict[str, Callable[[], Any]] = {"starlette": _starlette, "fastapi": _fastapi}


def _asgi_client(app: Any) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://gateway", headers={"x-account": "acme"})


@pytest.mark.parametrize("framework", WSGI)
def test_wsgi_applications_answer_as_they_did_until_they_are_refused(framework: str) -> None:
    """Streams and error pages of the framework are its own: the limiter adds headers and nothing else."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=4, scopes=ROUTES))
    app = RateLimitWSGIMiddleware(WSGI[framework](), fleet.limiter, headers="both")
    transport = httpx.WSGITransport(app)
    with httpx.Client(transport=transport, base_url="http://gateway", headers={"x-account": "acme"}) as client:
        answers = [client.get(f"/api/{name}") for name in ("items/7", "stream", "fail", "gone", "items/8")]
    _check(fleet, answers)


@pytest.mark.parametrize("framework", ASGI)
async def test_asgi_applications_answer_as_they_did_until_they_are_refused(framework: str) -> None:
    """Mounted applications and routers: the policy's route decides, as the middleware runs before any routing."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=4, scopes=ROUTES))
    app = RateLimitMiddleware(ASGI[framework](), fleet.limiter, headers="both")
    async with _asgi_client(app) as client:
        answers = [await client.get(f"/api/{name}") for name in ("items/7", "stream", "fail", "gone", "items/8")]
    _check(fleet, answers)


async def test_django_over_asgi_answers_until_it_is_refused() -> None:
    """The same application may be served either way."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=1, scopes=ROUTES))
    async with _asgi_client(RateLimitMiddleware(_django(ASGIHandler), fleet.limiter)) as client:
        answers = [await client.get("/api/items/7") for _ in range(2)]
    assert [200, 429] == [answer.status_code for answer in answers]
    assert all("ratelimit" in answer.headers for answer in answers)


def _check(fleet: Fleet, answers: list[httpx.Response]) -> None:
    assert [200, 200, 500, 404, 429] == [answer.status_code for answer in answers]
    assert ["7", "abc"] == [answer.text for answer in answers[:2]]
    assert all({"ratelimit", "x-ratelimit-remaining"} <= set(answer.headers) for answer in answers)
    assert "1" == answers[-1].headers["retry-after"]
    assert "application/problem+json" == answers[-1].headers["content-type"]
    scopes = ["GET /api/items/{id}", "GET /api/stream", "GET /api/fail", "(unmatched)", "GET /api/items/{id}"]
    assert scopes == [verdict.basis.scope for verdict in fleet.sink.verdicts]
