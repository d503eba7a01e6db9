"""A real client at a real gateway: the transport of httpx, uvicorn, the middleware, an owner in memory."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import requests

from enforcer import Limiter, RateLimitMiddleware
from enforcer.clients import Retries, RetryBudget
from enforcer.clients.for_httpx import RetryTransport
from enforcer.clients.for_requests import RetryAdapter
from enforcer.clock import SystemClock
from enforcer.http.asgi import Receive, Scope, Send
from enforcer.identity import new_identity
from enforcer.owners.memory import MemoryOwner
from enforcer.policies import parse_policy
from enforcer.testing import RecordingSink
from tests.servers.threaded import serving

RATE_PER_S, BURST, REQUESTS = 20, 20, 60
POLICY = f"version: 3\nplans: {{p: {{rate_per_s: {RATE_PER_S}, burst: {BURST}}}}}\ndefault_plan: p\n"


async def _hello(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"hello"})


@contextmanager
def _gateway(sink: RecordingSink, ports: set[int]) -> Iterator[str]:
    clock = SystemClock()

    def build() -> Limiter:
        identity = new_identity("gw-1", unix_ms=clock.unix_us() // 1_000, pid=os.getpid())
        return Limiter(parse_policy(POLICY.encode()), MemoryOwner(now_us=clock.unix_us), sink, identity)

    def identify(scope: Mapping[str, Any]) -> str:
        ports.add(scope["client"][1])
        return "acme"

    app = RateLimitMiddleware(_hello, build, identify=identify)
    with serving(app) as address:
        yield address


def test_a_client_at_twice_its_plan_is_answered_in_the_end() -> None:
    """What the helper is for: nothing is lost, the plan is kept, and refusals stay within the budget."""
    sink, retries = RecordingSink(), Retries(budget=RetryBudget(share=0.1, floor=10))
    with (
        _gateway(sink, set()) as address,
        httpx.Client(transport=RetryTransport(None, retries), base_url=address) as client,
    ):
        began = time.monotonic()

        def send(number: int) -> int:
            # Due at twice the plan's rate; what was refused in between makes the next ones late, not fewer.
            time.sleep(max(0.0, began + number / (2 * RATE_PER_S) - time.monotonic()))
            return client.get("/").status_code

        with ThreadPoolExecutor(2) as pool:
            statuses = Counter(pool.map(send, range(REQUESTS)))
        took_s = time.monotonic() - began
    counts = retries.counts
    assert {200: REQUESTS} == statuses
    assert 1 <= counts.refusals == counts.retries <= 10 + 0.1 * REQUESTS
    assert (REQUESTS, 0, 0) == (counts.requests, counts.given_up, counts.unsafe)
    recorded = Counter(verdict.allowed for verdict in sink.verdicts)
    assert {True: REQUESTS, False: counts.refusals} == recorded
    assert took_s >= (REQUESTS - BURST) / RATE_PER_S - 0.05


def test_requests_gets_its_answer_on_a_connection_that_stays() -> None:
    """The refusal was read: the retry needs no new connection."""
    ports: set[int] = set()
    adapter = RetryAdapter()
    with _gateway(RecordingSink(), ports) as address, requests.Session() as session:
        session.trust_env = False
        session.mount(address, adapter)
        while not adapter.retries.counts.refusals:
            assert 200 == session.get(address, timeout=10).status_code
    assert (1, 1) == (len(ports), adapter.retries.counts.retries)
