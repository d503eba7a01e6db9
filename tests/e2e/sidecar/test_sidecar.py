"""The sidecar over real HTTP: what it answers, what it refuses, and how it ends."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from enforcer.identity import parse_request_id
from enforcer.sidecar.models import BatchAnswer, CheckAnswer, Health, Problem, Readiness
from enforcer.sidecar.openapi import openapi
from tallygate.engines.valkey import Valkey
from tests.e2e.sidecar.conftest import Start
from tests.processes import freeze, thaw

pytestmark = pytest.mark.services

_TOKEN = "a-token-of-some-length"


def test_verdict_is_an_answer_and_a_refusal_too(start: Start, fresh_valkey: Valkey) -> None:
    """Clients in any language read the verdict from the body; a status would be theirs to set."""
    sidecar = start(fresh_valkey.url)
    answers = [sidecar.ask("POST", "/check", {"caller": "marlow", "scope": "search"}) for _ in range(4)]
    assert [status for status, _, _ in answers] == [200] * 4
    verdicts = [msgspec.convert(body, CheckAnswer) for _, body, _ in answers]
    assert [verdict.allowed for verdict in verdicts] == [True, True, True, False]
    refused = verdicts[3]
    assert refused.reason == "spent"
    assert refused.retry_after_ms is not None
    assert 0 < refused.retry_after_ms <= 1_001
    assert refused.headers["retry-after"] in {"1", "2"}
    assert refused.limit.burst == 3
    assert len({verdict.request_id for verdict in verdicts}) == 4
    never = sidecar.ask("POST", "/check", {"caller": "marlow", "cost": 4})[1]
    assert (never["allowed"], never["reason"], never["retry_after_ms"]) == (False, "never", None)


def test_faults_are_named(start: Start) -> None:
    """Field, value and what is allowed: else every integrator has to guess."""
    sidecar = start("redis://127.0.0.1:1/0")
    cases: list[tuple[str, Any, str, str]] = [
        ("/check", b"{", "body", "{"),
        ("/check", [], "body", "[]"),
        ("/check", {}, "caller", "None"),
        ("/check", {"caller": ""}, "caller", "''"),
        ("/check", {"caller": "a", "cost": -1}, "cost", "-1"),
        ("/check", {"caller": "a", "cost": "1"}, "cost", "'1'"),
        ("/check", {"caller": "a", "scope": 7}, "scope", "7"),
        ("/check", {"caller": "a", "price": 1}, "price", "1"),
        ("/check/batch", {"checks": []}, "checks", "[]"),
        ("/check/batch", {"checks": [{"caller": "a"}, {"caller": "a\n"}]}, "checks[1].caller", r"'a\n'"),
        ("/check/batch", {"checks": [{"caller": "a"}, {"caller": "a", "cost": -2}]}, "checks[1].cost", "-2"),
    ]
    for path, body, field, value in cases:
        status, problem, headers = sidecar.ask("POST", path, body)
        assert (status, headers["content-type"]) == (400, "application/problem+json")
        fault = msgspec.convert(problem, Problem)
        assert fault.field == field
        assert value in fault.detail
        assert fault.allowed
        assert fault.allowed in fault.detail


def test_description_is_what_is_answered(start: Start, fresh_valkey: Valkey) -> None:
    """A description that rots is worse than none."""
    sidecar = start(fresh_valkey.url)
    assert sidecar.ask("GET", "/openapi.json")[1] == msgspec.to_builtins(openapi())
    batch = sidecar.ask("POST", "/check/batch", {"checks": [{"caller": "a"}, {"caller": "b", "cost": 0}]})[1]
    assert [one.allowed for one in msgspec.convert(batch, BatchAnswer).verdicts] == [True, True]
    health, readiness = sidecar.ask("GET", "/healthz")[1], sidecar.ask("GET", "/readyz")[1]
    fault = sidecar.ask("POST", "/check", {})[1]
    schemas = openapi()["components"]["schemas"]
    found = {
        "BatchAnswer": batch,
        "CheckAnswer": batch["verdicts"][0],
        "Health": health,
        "Readiness": readiness,
        "Problem": fault,
    }
    for name, answer in found.items():
        assert set(answer) == set(schemas[name]["properties"])
    assert msgspec.convert(health, Health).status == "alive"
    assert msgspec.convert(readiness, Readiness) == Readiness("ready", {fresh_valkey.url: "there"})
    long = {"x_account": "a" * 300}
    answers: list[tuple[str, str, Any, dict[str, str]]] = [
        ("POST", "/check", {"caller": "a"}, {}),
        ("POST", "/check", {}, {}),
        ("POST", "/check/batch", b"x" * 65_537, {}),
        ("GET", "/auth", None, {}),
        ("GET", "/auth", None, long),
        ("GET", "/healthz", None, {}),
        ("GET", "/readyz", None, {}),
    ]
    for method, path, body, headers in answers:
        status = sidecar.ask(method, path, body, **headers)[0]
        assert str(status) in openapi()["paths"][path][method.lower()]["responses"], f"{method} {path}: {status}"
    for path, methods in openapi()["paths"].items():
        assert sidecar.ask("DELETE", path)[0] == 405
        assert set(methods) <= {"get", "post"}


def test_token_keeps_others_out(start: Start, fresh_valkey: Valkey) -> None:
    """Not everyone on the host may spend a customer's tokens."""
    sidecar = start(fresh_valkey.url, TALLYGATE_SIDECAR_TOKEN=_TOKEN)
    body = {"caller": "a"}
    assert sidecar.ask("POST", "/check", body)[0] == 401
    assert sidecar.ask("POST", "/check", body, authorization=f"Bearer {_TOKEN}x")[0] == 401
    assert sidecar.ask("POST", "/check", body, authorization=f"Bearer {_TOKEN}")[0] == 200
    assert sidecar.ask("GET", "/auth")[0] == 401
    assert sidecar.ask("GET", "/healthz")[0] == 200


def test_frozen_owner_costs_one_wait(start: Start, fresh_valkey: Valkey) -> None:
    """An owner that hangs must not hang the gateways."""
    sidecar = start(fresh_valkey.url)
    assert sidecar.ask("POST", "/check", {"caller": "a"})[0] == 200
    freeze(fresh_valkey.child.pid)
    try:
        took = []
        for number in range(20):
            before = time.monotonic()
            assert sidecar.ask("POST", "/check", {"caller": f"new-{number}"})[1]["source"] == "degraded"
            took.append(time.monotonic() - before)
        assert sum(one > 0.045 for one in took) <= 1
        assert sidecar.ask("GET", "/readyz")[1]["status"] == "degraded"
    finally:
        thaw(fresh_valkey.child.pid)


def test_workers_are_copies_of_their_own(start: Start, fresh_valkey: Valkey) -> None:
    """Two processes under one name would break the numbering of decisions."""
    sidecar = start(fresh_valkey.url, "--workers", "2", TALLYGATE_COPY_ID="edge")
    seen: set[tuple[str, int]] = set()
    deadline = time.monotonic() + 20
    while len(seen) < 2 and time.monotonic() < deadline:
        sidecar.connection.close()
        identity, _ = parse_request_id(sidecar.ask("POST", "/check", {"caller": "a"})[1]["request_id"])
        seen.add((identity.copy_id, identity.epoch))
    assert len(seen) == 2
    assert all(name.startswith("edge-") for name, _ in seen)
