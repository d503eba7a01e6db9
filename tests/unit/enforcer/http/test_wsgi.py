"""The WSGI middleware by direct calls: what the client is sent, and what the application never sees."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from enforcer.config import EnforcerConfig
from enforcer.errors import ConfigError, PolicyError
from enforcer.http.asgi import RateLimitMiddleware
from enforcer.http.wsgi import RateLimitWSGIMiddleware
from enforcer.keying import first_of, from_address, from_header
from enforcer.limiting.limiter import Limiter
from enforcer.sink import NullSink
from enforcer.wiring import build_limiter
from tests.unit.enforcer.harness import Fleet, make_policy


def _hello(_environ: Any, start_response: Any) -> Iterable[bytes]:
    start_response("200 OK", [("content-type", "text/plain")])
    return [b"hello"]


def _get(app: Any, path: str = "/", *, method: str = "GET", **environ: str) -> tuple[str, dict[str, str], bytes]:
    started: list[tuple[Any, ...]] = []
    request = {"REQUEST_METHOD": method, "PATH_INFO": path, "SCRIPT_NAME": "", "HTTP_X_ACCOUNT": "acme", **environ}
    body = b"".join(app(request, lambda *arguments: started.append(arguments)))
    return started[-1][0], dict(started[-1][1]), body


def test_a_success_carries_the_applications_answer_and_the_headers() -> None:
    """A client that sees its room can pace itself before it is ever refused."""
    status, headers, body = _get(RateLimitWSGIMiddleware(_hello, Fleet().limiter))
    assert ("200 OK", b"hello", "text/plain") == (status, body, headers["content-type"])
    assert '"rate";q=200;w=2' == headers["ratelimit-policy"]
    assert headers["ratelimit"].startswith('"rate";r=19')
    assert "retry-after" not in headers


@pytest.mark.parametrize("build", [build_limiter, partial(build_limiter, sink=lambda _: NullSink())])
def test_wrong_settings_end_the_start_instead_of_every_request(
    build: Callable[[], Limiter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A green start and a 500 for every request is an outage; what is right builds nothing, for the server may fork."""
    file = tmp_path / "policy.yaml"
    monkeypatch.setenv("TALLYGATE_POLICY", str(file))
    with pytest.raises(ConfigError, match="the policy file that TALLYGATE_POLICY names does not exist"):
        RateLimitWSGIMiddleware(_hello, build)
    file.write_text("version: 1\ncolour: red\n")
    with pytest.raises(PolicyError, match="colour"):
        RateLimitWSGIMiddleware(_hello, build)
    file.write_text("version: 1\nplans: {p: {rate_per_s: 1, burst: 1}}\ndefault_plan: p\n")
    monkeypatch.setenv("TALLYGATE_OWNER_URL", "redis://host:notaport/0")
    with pytest.raises(ConfigError, match="TALLYGATE_OWNER_URL: owner address has a port that is no number"):
        RateLimitWSGIMiddleware(_hello, build)
    monkeypatch.setenv("TALLYGATE_OWNER_URL", "redis://127.0.0.1:9/0")
    before = threading.enumerate()
    RateLimitWSGIMiddleware(_hello, build)
    assert before == threading.enumerate()


def test_a_configuration_that_is_given_is_the_one_that_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A right environment must not hide it, nor a wrong one stand in its way."""
    file = tmp_path / "policy.yaml"
    file.write_text("version: 1\nplans: {p: {rate_per_s: 1, burst: 1}}\ndefault_plan: p\n")
    right = EnforcerConfig(policy_path=str(file), copy_id="gw-1")
    monkeypatch.setenv("TALLYGATE_POLICY", str(tmp_path / "none.yaml"))
    RateLimitWSGIMiddleware(_hello, partial(build_limiter, right))
    RateLimitWSGIMiddleware(_hello, partial(build_limiter, config=right))
    with pytest.raises(ConfigError):
        RateLimitWSGIMiddleware(_hello, partial(build_limiter, sink=None))


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_refusal_is_a_problem_and_never_reaches_the_application(method: str) -> None:
    """Its reader is someone whose calls fail; a HEAD has no body, only its length."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=2))
    app = RateLimitWSGIMiddleware(_hello, fleet.limiter)
    assert ["200 OK", "200 OK"] == [_get(app)[0] for _ in range(2)]
    status, headers, body = _get(app, method=method)
    assert ("429 Too Many Requests", "application/problem+json", "1") == (
        status,
        headers["content-type"],
        headers["retry-after"],
    )
    assert int(headers["content-length"]) > 0
    if method == "HEAD":
        assert b"" == body
    else:
        assert len(body) == int(headers["content-length"])
        assert (429, 1_000) == (json.loads(body)["status"], json.loads(body)["retry_after_ms"])


def test_never_has_no_retry_after() -> None:
    """E1: a client that waits for it would wait for ever."""
    plans = {"standard": {"rate_per_s": 1, "burst": 5}, "large": {"rate_per_s": 1, "burst": 10}}
    fleet = Fleet(make_policy(plans=plans, scopes={"GET /all": {"cost": 10}}))
    status, headers, _ = _get(RateLimitWSGIMiddleware(_hello, fleet.limiter, headers="both"), "/all")
    assert "429 Too Many Requests" == status
    assert not {"retry-after", "x-ratelimit-reset"} & set(headers)


def test_an_owner_that_dies_during_a_request_does_not_touch_its_answer() -> None:
    """E15: the headers are made from what is here; never a 500."""
    fleet = Fleet()

    def app(environ: Any, start_response: Any) -> Iterable[bytes]:
        fleet.owner.away = "died meanwhile"
        return _hello(environ, start_response)

    status, headers, body = _get(RateLimitWSGIMiddleware(app, fleet.limiter))
    assert ("200 OK", b"hello") == (status, body)
    assert "ratelimit" in headers


def test_a_response_that_fails_midway_may_start_again_with_its_error() -> None:
    """An application's error page replaces its first headers: the server must get both starts, and the error."""
    started: list[tuple[Any, ...]] = []

    def app(_environ: Any, start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [])
        try:
            int("the application's own")
        except ValueError:
            start_response("500 Oops", [], sys.exc_info())
        return [b"oops"]

    middleware = RateLimitWSGIMiddleware(app, Fleet().limiter)
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/"}
    middleware(environ, lambda *arguments: started.append(arguments))  # type: ignore[arg-type]  # a server that only notes
    assert [("200 OK", 2), ("500 Oops", 3)] == [(arguments[0], len(arguments)) for arguments in started]
    assert ValueError is started[1][2][0]
    assert all("ratelimit" in dict(arguments[1]) for arguments in started)


def test_a_stream_is_handed_on_as_it_is() -> None:
    """A server closes the application's own iterable, and may send a file by its descriptor."""

    def parts() -> Iterator[bytes]:
        yield b"a"

    stream = parts()

    def app(_environ: Any, start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [])
        return stream

    middleware = RateLimitWSGIMiddleware(app, Fleet().limiter)
    assert stream is middleware({"REQUEST_METHOD": "GET", "PATH_INFO": "/"}, lambda *_: print)


def test_an_applications_own_failure_comes_through() -> None:
    """The middleware is no error handler: it must not hide what the application raises."""

    def app(_environ: Any, _start_response: Any) -> Iterable[bytes]:
        raise LookupError("the application's own")

    with pytest.raises(LookupError):
        _get(RateLimitWSGIMiddleware(app, Fleet().limiter))


def test_a_caller_of_another_form_is_a_bad_request() -> None:
    """The fault is in the request: a 500 would be ours."""
    fleet = Fleet()
    status, _, body = _get(RateLimitWSGIMiddleware(_hello, fleet.limiter), HTTP_X_ACCOUNT="x" * 300)
    assert "400 Bad Request" == status
    assert "caller is" in json.loads(body)["detail"]
    assert [] == fleet.sink.verdicts


def test_peers_without_an_identity_are_told_apart_by_their_addresses() -> None:
    """One flood from one address would otherwise refuse everybody who has not logged in."""
    fleet = Fleet(make_policy(rate_per_s=0.001, burst=1))
    address = from_address(secret="a-secret-of-enough-bytes", trusted_proxies=["10.0.0.0/8"])
    app = RateLimitWSGIMiddleware(_hello, fleet.limiter, identify=first_of(from_header("x-account"), address))
    nobody = {"HTTP_X_ACCOUNT": ""}
    assert ["200 OK"] * 3 == [_get(app, REMOTE_ADDR=f"192.0.2.{n}", **nobody)[0] for n in range(3)]
    assert "429 Too Many Requests" == _get(app, REMOTE_ADDR="192.0.2.1", **nobody)[0]
    behind = {"REMOTE_ADDR": "10.0.0.1", "HTTP_X_FORWARDED_FOR": "1.1.1.1, 192.0.2.1"}
    assert "429 Too Many Requests" == _get(app, **behind, **nobody)[0]


def test_identities_that_the_server_has_joined_are_a_bad_request() -> None:
    """Two headers of one name come as one with a comma: a caller of that name would have a bucket of its own."""
    fleet = Fleet()
    status, _, body = _get(RateLimitWSGIMiddleware(_hello, fleet.limiter), HTTP_X_ACCOUNT="acme,victim")
    assert ("400 Bad Request", []) == (status, fleet.sink.verdicts)
    assert "more than once" in json.loads(body)["detail"]


def test_a_request_without_a_path_is_one_for_the_root() -> None:
    """A server may leave the path empty where the application is mounted at the root."""
    fleet = Fleet(make_policy(scopes={"GET /": {}}))
    _get(RateLimitWSGIMiddleware(_hello, fleet.limiter), "")
    assert "GET /" == fleet.sink.verdicts[0].basis.scope


def test_scope_is_found_under_a_mount_and_follows_the_policy() -> None:
    """A policy that changes under way must be in force at the next request, not at the next start."""
    fleet = Fleet(make_policy(scopes={"GET /api/é/{id}": {}}))
    app = RateLimitWSGIMiddleware(_hello, fleet.limiter)
    _get(app, "/é/7".encode().decode("latin-1"), SCRIPT_NAME="/api")
    fleet.limiter.policy = make_policy(scopes={"GET /api/{rest:path}": {}})
    _get(app, "/x/7", SCRIPT_NAME="/api")
    assert ["GET /api/é/{id}", "GET /api/{rest:path}"] == [verdict.basis.scope for verdict in fleet.sink.verdicts]


@pytest.mark.parametrize(
    ("style", "names"),
    [
        ("draft", {"ratelimit", "ratelimit-policy"}),
        ("legacy", {"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"}),
        (
            "both",
            {"ratelimit", "ratelimit-policy", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"},
        ),
        ("none", set()),
    ],
)
def test_headers_are_those_that_were_asked_for(style: Any, names: set[str]) -> None:
    """Clients in the field parse what they parse; a refusal says when to return in every style."""
    app = RateLimitWSGIMiddleware(_hello, Fleet(make_policy(rate_per_s=1, burst=1)).limiter, headers=style)
    assert names == set(_get(app)[1]) - {"content-type"}
    assert names | {"retry-after"} == set(_get(app)[1]) - {"content-type", "content-length"}


@pytest.mark.parametrize("middleware", [RateLimitMiddleware, RateLimitWSGIMiddleware])
def test_a_style_that_is_none_is_refused_at_once(middleware: Any) -> None:
    """A misspelt option must not show at the first request of a day."""
    with pytest.raises(ConfigError, match="headers is 'drfat'; allowed: draft, legacy, both, none"):
        middleware(_hello, Fleet().limiter, headers="drfat")
