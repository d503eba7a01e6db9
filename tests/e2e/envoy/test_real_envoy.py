"""A real Envoy asks the service: refusals, callers kept apart, and what happens when owner or service are away."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tallygate.engines.valkey import Valkey
from tests.e2e.envoy.stack import Stack, service_in_process
from tests.services import freeze, kill, thaw, wait_until

#: What a request may take beside Envoy's own 250 ms: the machine is shared.
_SLACK_S = 1.5


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    running = Stack(tmp_path)
    yield running
    running.stop()


def test_envoy_lets_through_what_was_sold_and_agrees_with_our_record(stack: Stack, fresh_valkey: Valkey) -> None:
    """The whole way: 200s, then 429s with their headers; another caller is not touched; both sides count the same."""
    with service_in_process(fresh_valkey.url, stack.service_port) as sink:
        wait_until(lambda: "ratelimit" in stack.get("probe")[1], 10, what="Envoy's connection to the service")
        answers = [stack.get("marlow", "/items/7?x=1") for _ in range(20)]
        other = stack.get("acme", "/nowhere")
        wait_until(
            lambda: stack.stat("ok") + stack.stat("over_limit") == len(sink.verdicts), 5, what="Envoy's counters"
        )
        admitted = sum(verdict.allowed for verdict in sink.verdicts)
        assert (admitted, len(sink.verdicts) - admitted) == (stack.stat("ok"), stack.stat("over_limit"))
    statuses = [status for status, _, _ in answers]
    assert [200] * 10 == statuses[:10]
    assert 429 == statuses[-1]
    assert {200, 429} == set(statuses)
    _, found, body = answers[-1]
    assert '"rate";q=10;w=10' == found["ratelimit-policy"]
    assert int(found["retry-after"]) >= 1
    assert found["tallygate-request-id"].encode() in body
    assert "application/problem+json" == found["content-type"]
    assert answers[0][1]["ratelimit"].startswith('"rate";r=')
    assert 200 == other[0]
    assert {"GET /items/{id}", "(unmatched)"} == {verdict.basis.scope for verdict in sink.verdicts}


def test_frozen_owner_holds_no_request_up_longer_than_envoys_timeout(stack: Stack, fresh_valkey: Valkey) -> None:
    """An owner that hangs is the worst one: requests go on, decided by this copy alone."""
    with service_in_process(fresh_valkey.url, stack.service_port) as sink:
        wait_until(lambda: "ratelimit" in stack.get("probe")[1], 10, what="Envoy's connection to the service")
        freeze(fresh_valkey.pid)
        try:
            before = len(sink.verdicts)
            started = time.monotonic()
            statuses = [stack.get(f"caller-{number}")[0] for number in range(10)]
            assert time.monotonic() - started < 0.25 + _SLACK_S
            assert [200] * 10 == statuses
            assert 10 == len(sink.verdicts) - before
        finally:
            thaw(fresh_valkey.pid)


@pytest.mark.chaos
def test_killed_service_is_passed_by_and_found_again(stack: Stack, fresh_valkey: Valkey) -> None:
    """With failure_mode_deny false requests pass uncounted while it is away; after a restart limits hold again."""
    service = stack.start_service(fresh_valkey.url)
    wait_until(lambda: "ratelimit" in stack.get("probe")[1], 10, what="Envoy's connection to the service")
    kill(service.pid)
    service.stop()
    assert [200] * 15 == [stack.get("marlow")[0] for _ in range(15)]
    assert stack.stat("failure_mode_allowed") >= 15
    again = stack.start_service(fresh_valkey.url)
    wait_until(lambda: "ratelimit" in stack.get("probe")[1], 20, what="Envoy's way back to the service")
    assert 429 in [stack.get("marlow")[0] for _ in range(15)]
    started = time.monotonic()
    again.ask_to_end()
    assert 0 == again.wait(10)
    assert time.monotonic() - started < 7, "closing takes at most half a second and five"


@pytest.mark.chaos
def test_without_the_service_envoy_refuses_where_it_is_told_to(tmp_path: Path) -> None:
    """With failure_mode_deny true nothing passes unchecked: 500."""
    stack = Stack(tmp_path, failure_mode_deny=True)
    try:
        assert [500] * 3 == [stack.get("marlow")[0] for _ in range(3)]
        assert 3 == stack.stat("error")
    finally:
        stack.stop()
