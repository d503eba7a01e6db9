"""The middleware by direct calls: what the client is sent, and what the application never sees."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from enforcer.http.asgi import Message, RateLimitMiddleware, Receive, Scope, Send
from enforcer.identity import parse_request_id
from enforcer.keying import from_api_key
from enforcer.types import Reason
from tests.unit.enforcer.harness import Fleet, make_policy


@dataclass
class Client:
    """Sends requests into a middleware and keeps what comes back."""

    app: RateLimitMiddleware
    seen: list[str] = field(default_factory=list)

    async def get(
        self, path: str = "/", *, method: str = "GET", headers: Mapping[str, str] | None = None, **scope: object
    ) -> tuple[int, dict[str, str], bytes]:
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        pairs = [(name.encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
        await self.app({"type": "http", "method": method, "path": path, "headers": pairs, **scope}, _no_receive, send)
        start = sent[0]
        body = b"".join(message.get("body", b"") for message in sent[1:])
        return start["status"], {name.decode(): value.decode() for name, value in start["headers"]}, body


async def _no_receive() -> Message:
    raise AssertionError("nothing reads the body")


async def _hello(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"hello"})


def _client(fleet: Fleet, **options: Any) -> Client:
    return Client(RateLimitMiddleware(_hello, fleet.limiter, **options))


async def test_a_success_carries_the_applications_answer_and_the_headers() -> None:
    """A client that sees its room can pace itself before it is ever refused."""
    status, headers, body = await _client(Fleet()).get(headers={"x-account": "acme"})
    assert (200, b"hello", "text/plain") == (status, body, headers["content-type"])
    assert '"rate";q=200;w=2' == headers["ratelimit-policy"]
    assert headers["ratelimit"].startswith('"rate";r=19')
    assert headers["ratelimit"].endswith(";t=1")
    assert "retry-after" not in headers


async def test_a_refusal_is_a_problem_that_explains_itself() -> None:
    """Its reader is someone whose calls fail: why, until when, and an id that support can find."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=2))
    client = _client(fleet)
    for _ in range(2):
        await client.get(headers={"x-account": "acme"})
    status, headers, body = await client.get(headers={"x-account": "acme"})
    assert (429, "application/problem+json") == (status, headers["content-type"])
    assert len(body) == int(headers["content-length"])
    problem = json.loads(body)
    assert {
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Too Many Requests",
        "status": 429,
        "detail": "Refused: the burst of 2 was spent; the next request would have been admitted 1 s later.",
        "retry_after_ms": 1_000,
        "limit": {"name": "rate", "plan": "standard", "rate_per_s": 1.0, "burst": 2},
        "violated-policies": ["rate"],
    } == {name: value for name, value in problem.items() if name != "request_id"}
    assert ("1", '"rate";r=0;t=1') == (headers["retry-after"], headers["ratelimit"])
    identity, seq = parse_request_id(problem["request_id"])
    assert (fleet.limiter.identity, fleet.sink.verdicts[-1].seq) == (identity, seq)


async def test_a_refusal_by_a_quota_names_the_quota_and_its_period() -> None:
    """A rate and a burst that nobody sold are figures that a customer's program would go by."""
    day = {"quota": 1, "per": "day", "zone": "Europe/Berlin"}
    plans = {"standard": {"rate_per_s": 100, "burst": 200, "limits": {"day": day}}}
    client = _client(Fleet(make_policy(plans=plans)))
    await client.get(headers={"x-account": "acme"})
    status, _, body = await client.get(headers={"x-account": "acme"})
    problem = json.loads(body)
    assert 429 == status
    assert {"name": "day", "plan": "standard", "quota": 1, "per": "day Europe/Berlin"} == problem["limit"]
    assert problem["detail"].startswith("Refused: the quota of 1 per day was used up")


async def test_never_has_no_retry_after() -> None:
    """E1: a client that waits for it would wait for ever."""
    plans = {"standard": {"rate_per_s": 1, "burst": 5}, "large": {"rate_per_s": 1, "burst": 10}}
    fleet = Fleet(make_policy(plans=plans, scopes={"GET /all": {"cost": 10}}))
    status, headers, body = await _client(fleet).get("/all", headers={"x-account": "acme"})
    assert 429 == status
    assert "retry-after" not in headers
    assert '"rate";r=5' == headers["ratelimit"]
    problem = json.loads(body)
    assert problem["retry_after_ms"] is None
    assert "will never be admitted" in problem["detail"]


async def test_refusals_without_the_owner_are_the_services_not_the_clients() -> None:
    """The client must be able to tell its own excess from our outage."""
    fleet = Fleet(make_policy(scopes={"GET /pay": {"fail_mode": "closed"}}))
    fleet.owner.away = "tested"
    status, headers, body = await _client(fleet).get("/pay", headers={"x-account": "acme"})
    problem = json.loads(body)
    assert (429, "1") == (status, headers["retry-after"])
    assert problem["type"].endswith("#temporary-reduced-capacity")
    assert Reason.CLOSED is fleet.sink.verdicts[-1].reason


async def test_a_caller_of_another_form_is_a_bad_request_that_is_not_recorded() -> None:
    """The fault is in the request: a 500 would be ours, and a record of it would be its writer's."""
    fleet = Fleet()
    for value in ("a\tb", "x" * 300):
        status, headers, body = await _client(fleet).get(headers={"x-account": value})
        assert (400, "application/problem+json") == (status, headers["content-type"])
        assert "caller is" in json.loads(body)["detail"]
    assert [] == fleet.sink.verdicts


async def test_requests_without_identity_share_the_anonymous_bucket() -> None:
    """Otherwise leaving the header out would be the way around the limit."""
    fleet = Fleet(
        make_policy(
            plans={"standard": {"rate_per_s": 100, "burst": 200}, "guest": {"rate_per_s": 1, "burst": 2}},
            anonymous={"caller": "nobody", "plan": "guest"},
        )
    )
    client = _client(fleet)
    assert [200, 200, 429] == [(await client.get())[0] for _ in range(3)]
    assert {"nobody"} == {verdict.basis.caller for verdict in fleet.sink.verdicts}
    assert 200 == (await client.get(headers={"x-account": "acme"}))[0]


@pytest.mark.parametrize(
    ("path", "scope", "name"),
    [
        ("/items/7", {}, "GET /items/{id}"),
        ("/other/7", {}, "(unmatched)"),
        ("/x", {"route": SimpleNamespace(path="/from/{framework}")}, "GET /from/{framework}"),
        ("/x", {"route": SimpleNamespace(path_format="/f/{rest}", path="/f/{rest:path}")}, "GET /f/{rest}"),
        ("/items/7", {"route": object()}, "GET /items/{id}"),
    ],
)
async def test_scope_is_a_template_never_a_path(path: str, scope: dict[str, Any], name: str) -> None:
    """R14: ten thousand paths are one scope, or the record is useless and the memory full."""
    fleet = Fleet(make_policy(scopes={"GET /items/{id}": {}}))
    await _client(fleet).get(path, headers={"x-account": "acme"}, **scope)
    assert [name] == [verdict.basis.scope for verdict in fleet.sink.verdicts]


async def test_identity_and_scope_can_be_given() -> None:
    """Every gateway knows its callers in its own way, and a key is never an id."""
    fleet = Fleet()
    identify = from_api_key("authorization", "a-secret-of-enough-bytes")
    client = _client(fleet, identify=identify, scope_of=lambda scope: "tier-1")
    await client.get(headers={"authorization": "Bearer abcdefghijklmnop"})
    basis = fleet.sink.verdicts[0].basis
    assert "tier-1" == basis.scope
    assert basis.caller.startswith("key-")


async def test_other_connections_pass_through_untouched() -> None:
    """A websocket is not a request, and a lifespan is the application's when the limiter was given whole."""
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    async def send(message: Message) -> None:
        raise AssertionError(message)

    fleet = Fleet()
    middleware = RateLimitMiddleware(app, fleet.limiter)
    for kind in ("websocket", "lifespan"):
        await middleware({"type": kind}, _no_receive, send)
    assert ["websocket", "lifespan"] == seen
    assert [] == fleet.sink.verdicts


async def test_the_application_never_sees_a_refused_request() -> None:
    """Before anything expensive happens: that is the limiter's place."""
    calls: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        calls.append(1)
        await _hello(scope, receive, send)

    fleet = Fleet(make_policy(rate_per_s=1, burst=2))
    client = Client(RateLimitMiddleware(app, fleet.limiter))
    for _ in range(5):
        await client.get(headers={"x-account": "acme"})
    assert 2 == len(calls)


async def test_an_owner_that_dies_during_a_request_does_not_touch_its_answer() -> None:
    """E15: the headers are made from what is here; never a 500."""
    fleet = Fleet()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        fleet.owner.away = "died meanwhile"
        await _hello(scope, receive, send)

    client = Client(RateLimitMiddleware(app, fleet.limiter))
    status, headers, body = await client.get(headers={"x-account": "acme"})
    assert (200, b"hello") == (status, body)
    assert "ratelimit" in headers


async def test_an_applications_own_failure_comes_through() -> None:
    """The middleware is no error handler: it must not hide what the application raises."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise LookupError("the application's own")

    with pytest.raises(LookupError):
        await Client(RateLimitMiddleware(app, Fleet().limiter)).get()


def test_build_is_not_called_before_the_server_starts() -> None:
    """An import must not open connections, nor start threads before a fork."""

    def build() -> Any:
        raise AssertionError("built at import")

    build_later: Callable[[], Any] = build
    RateLimitMiddleware(_hello, build_later)
