"""A real gateway: uvicorn, the middleware as in the README, a real owner. What clients see is what is recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from enforcer import EnforcerConfig, RateLimitMiddleware, build_limiter
from enforcer.http.asgi import Receive, Scope, Send
from enforcer.testing import RecordingSink
from tallygate.engines.valkey import Valkey
from tests.servers.threaded import serving

POLICY = """\
version: 3
plans: {small: {rate_per_s: 1, burst: 10}, large: {rate_per_s: 1000, burst: 2000}}
default_plan: small
callers: {acme: large}
scopes: {"GET /items/{id}": {}}
timeouts: {ask_ms: 1000}
"""


async def _hello(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"hello"})


@contextmanager
def _gateway(owner_url: str, policy: Path, sink: RecordingSink) -> Iterator[str]:
    config = EnforcerConfig(owner_url=owner_url, policy_path=str(policy), copy_id="gw-1")
    app = RateLimitMiddleware(_hello, lambda: build_limiter(config, sink=lambda _: sink))
    with serving(app) as address:
        yield address


def test_clients_see_what_is_recorded_and_everything_is_settled(fresh_valkey: Valkey, tmp_path: Path) -> None:
    """The one promise: a 429 that a client saw is in the record, and every token is accounted for at shutdown."""
    policy, sink = tmp_path / "policy.yaml", RecordingSink()
    policy.write_text(POLICY)
    seen: Counter[tuple[str, bool]] = Counter()
    with _gateway(fresh_valkey.url, policy, sink) as address, httpx.Client(base_url=address) as client:
        for number in range(120):
            for caller in ("acme", "small-1"):
                response = client.get(f"/items/{number}", headers={"x-account": caller})
                seen[caller, response.status_code == 200] += 1
                assert response.status_code in {200, 429}
                assert response.headers["ratelimit"].startswith('"rate";r=')
                assert ("retry-after" in response.headers) is (response.status_code == 429)
    recorded = Counter((verdict.basis.caller, verdict.allowed) for verdict in sink.verdicts)
    assert seen == recorded
    assert 120 == seen["acme", True]
    assert seen["small-1", False] > 50
    assert {"GET /items/{id}"} == {verdict.basis.scope for verdict in sink.verdicts}
    assert sink.closed_within_s is not None
    spent = sink.spent_by_grant()
    assert spent == {key: total.spent for key, total in sink.final_totals().items() if total.spent}
