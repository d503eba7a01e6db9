"""A real Envoy asks the service: refusals, callers kept apart, and what happens when owner or service are away."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from enforcer.policies.model import Policy
from enforcer.sink import WouldRefuse
from tallygate.engines.ports import free_port
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
def test_hanging_service_is_passed_by_once_its_health_check_fails(stack: Stack, fresh_valkey: Valkey) -> None:
    """One that hangs is the worst: without the check every request would wait for Envoy's timeout."""
    port = free_port()
    service = stack.start_service(fresh_valkey.url, TALLYGATE_ENVOY_METRICS=f"127.0.0.1:{port}")
    wait_until(stack.is_healthy, 10, what="Envoy's first health check")
    assert "ratelimit" in stack.get("probe")[1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        metrics = page.read().decode()
    assert 'tallygate_degraded{owner="' in metrics
    assert "tallygate_envoy_unmatched_total" in metrics
    freeze(service.pid)
    try:
        wait_until(lambda: not stack.is_healthy(), 10, what="the failing health check")
        before = time.monotonic()
        assert [200] * 8 == [stack.get("marlow")[0] for _ in range(8)]
        assert time.monotonic() - before < 8 * 0.25, "no request waits for its timeout"
    finally:
        thaw(service.pid)
    wait_until(stack.is_healthy, 10, what="the service's return")
    wait_until(lambda: "ratelimit" in stack.get("probe")[1], 5, what="its answers")
    kill(service.pid)
    service.stop()


_DESCRIPTORS: list[dict[str, Any]] = [
    {
        "actions": [
            {"request_headers": {"header_name": f"x-{name}", "descriptor_key": name}},
            {"request_headers": {"header_name": ":path", "descriptor_key": "path"}},
        ],
        **more,
    }
    for name, more in (
        ("account", {"hits_addend": {"number": 2}}),
        ("site", {}),
        ("trial", {}),
        ("peek", {"hits_addend": {"number": 0}}),
    )
]
_POLICY = Policy.model_validate(
    {
        "version": 1,
        "plans": {"ten": {"rate_per_s": 0.001, "burst": 10}, "three": {"rate_per_s": 0.001, "burst": 3}},
        "default_plan": "ten",
        "callers": {"site shop": "three", "trial shop": "three"},
        "envoy": {
            "domains": {
                "shop": {
                    "rules": {
                        "account": {"caller": "{account}", "scope": "read"},
                        "site": {"caller": "site {site}"},
                        "trial": {"caller": "trial {trial}", "mode": "shadow"},
                        "peek": {"caller": "{peek}", "scope": "peek"},
                    }
                }
            }
        },
    }
)


def test_several_descriptors_are_all_or_nothing_and_cost_what_envoy_says(tmp_path: Path, fresh_valkey: Valkey) -> None:
    """A site at its limit must cost no account a token; a limit that is tried out refuses nobody (E21)."""
    stack = Stack(tmp_path, rate_limits=_DESCRIPTORS)
    try:
        with service_in_process(fresh_valkey.url, stack.service_port, _POLICY) as sink:
            wait_until(lambda: "ratelimit" in stack.get("probe", peek="probe")[1], 10, what="the service")
            assert [200] * 5 + [429] == [stack.get("two-each")[0] for _ in range(6)], "hits_addend 2 of 10"
            assert [200] * 3 + [429] * 3 == [stack.get("acme", site="shop")[0] for _ in range(6)]
            assert [200] * 2 + [429] == [stack.get("acme")[0] for _ in range(3)], "the site's refusals cost nothing"
            tried = [stack.get("mine", trial="shop") for _ in range(5)]
            assert [200] * 5 == [status for status, _, _ in tried]
            assert '"rate";q=10;w=10000' == tried[-1][1]["ratelimit-policy"], "of the enforced ones alone"
            assert [200] * 5 == [stack.get("eve", peek="only")[0] for _ in range(5)]
            peeks = {verdict.cost for verdict in sink.verdicts if verdict.basis.caller == "only"}
        would = [fact for fact in sink.events if isinstance(fact, WouldRefuse)]
    finally:
        stack.stop()
    assert {0} == peeks
    assert ("trial shop", "rate", 2) == (would[-1].caller, would[-1].limit, would[-1].requests)


@pytest.mark.chaos
def test_without_the_service_envoy_refuses_where_it_is_told_to(tmp_path: Path) -> None:
    """With failure_mode_deny true nothing passes unchecked: 500."""
    stack = Stack(tmp_path, failure_mode_deny=True)
    try:
        assert [500] * 3 == [stack.get("marlow")[0] for _ in range(3)]
        assert 3 == stack.stat("error")
    finally:
        stack.stop()
