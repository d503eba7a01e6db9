"""What an operator sees of the sidecar: its record in Kafka, its metrics, and whether its owner is there."""

from __future__ import annotations

import http.client
import re
from collections import Counter

import pytest
from prometheus_client.parser import text_string_to_metric_families

from enforcer.metrics.register import REGISTER
from enforcer.types import Reason
from tallygate.engines.ports import free_port
from tallygate.engines.valkey import Valkey
from tests.e2e.sidecar.conftest import Start
from tests.log_reader import read_log
from tests.processes import freeze, thaw, wait_until
from tests.services import KafkaService

pytestmark = pytest.mark.services


def test_decisions_are_on_the_log_as_they_were_answered(
    start: Start, fresh_valkey: Valkey, embedded_broker: KafkaService
) -> None:
    """What a gateway was told and what the record says must be one thing, also across an end."""
    sidecar = start(fresh_valkey.url, "--kafka", TALLYGATE_KAFKA=embedded_broker.bootstrap, TALLYGATE_COPY_ID="edge-1")
    told: Counter[tuple[str, str, bool]] = Counter()
    for number in range(60):
        caller, scope = ("acme", "marlow")[number % 2], ("search", "export")[number % 3 == 0]
        answer = sidecar.ask("POST", "/check", {"caller": caller, "scope": scope})[1]
        told[caller, scope, answer["allowed"]] += 1
    checks = [{"caller": "acme", "scope": "batch"}] * 40
    for answer in sidecar.ask("POST", "/check/batch", {"checks": checks})[1]["verdicts"]:
        told["acme", "batch", answer["allowed"]] += 1
    assert sidecar.ask("GET", "/auth", x_account="acme", x_scope="pages")[0] == 204
    told["acme", "pages", True] += 1
    assert sidecar.end()[0] == 0
    log = read_log(embedded_broker.bootstrap, lambda log: len(log.identities()) >= told.total(), timeout_s=20)
    identities = log.identities()
    assert sorted(seq for _, _, seq in identities) == list(range(told.total()))
    assert {copy_id for copy_id, _, _ in identities} == {"edge-1"}
    recorded: Counter[tuple[str, str, bool]] = Counter()
    for block in log.blocks:
        bases = block.bases
        for basis, code in zip(block.basis.tolist(), block.code.tolist(), strict=True):
            recorded[
                bases.callers[bases.caller[basis]], bases.scopes[bases.scope[basis]], Reason(code & 15) is Reason.NONE
            ] += 1
    assert recorded == told
    assert log.lost() == []


def test_metrics_say_what_was_answered_and_readiness_what_the_owner_is(start: Start, fresh_valkey: Valkey) -> None:
    """Degraded is ready, because it decides; whoever looks must see it all the same."""
    sidecar = start(fresh_valkey.url, TALLYGATE_KAFKA=f"127.0.0.1:{free_port()}")
    assert sidecar.ask("GET", "/readyz")[1] == {"status": "ready", "owners": {fresh_valkey.url: "there"}}
    for _ in range(5):
        sidecar.ask("POST", "/check", {"caller": "marlow"})

    def decided() -> Counter[str]:
        families = {family.name: family for family in text_string_to_metric_families(sidecar.text("/metrics"))}
        assert set(families) == {name.removesuffix("_total") for name in REGISTER}
        found: Counter[str] = Counter()
        for one in families["tallygate_decisions"].samples:
            found[f"{one.labels['allowed']} {one.labels['reason']}"] += int(one.value)
        return found

    wait_until(lambda: decided().total() == 5, 5, what="all decisions in the metrics")
    assert decided() == {"true none": 3, "false spent": 2}
    metrics = sidecar.text("/metrics")
    assert '\ntallygate_sink_lost_total{what="decisions"} 0.0\n' in metrics, "the record's losses are watched"
    assert "\ntallygate_sidecar_connections 1.0\n" in metrics
    freeze(fresh_valkey.child.pid)
    try:
        sidecar.ask("POST", "/check", {"caller": "new"})
        degraded = (200, {"status": "degraded", "owners": {fresh_valkey.url: "away"}})
        wait_until(lambda: sidecar.ask("GET", "/readyz")[:2] == degraded, 5, what="the owner's absence in readiness")
    finally:
        thaw(fresh_valkey.child.pid)
    wait_until(lambda: sidecar.ask("GET", "/readyz")[1]["status"] == "ready", 20, what="the owner's return")


def test_owner_that_was_never_there_is_seen_before_any_request(start: Start) -> None:
    """An address with a typing error should not look well until traffic comes."""
    sidecar = start("redis://127.0.0.1:1/0")
    wait_until(lambda: sidecar.ask("GET", "/readyz")[1]["status"] == "degraded", 5, what="degraded")
    assert sidecar.ask("GET", "/healthz")[:2] == (200, {"status": "alive"})


def test_each_worker_is_watched_on_a_port_of_its_own(start: Start, fresh_valkey: Valkey) -> None:
    """One port for all would show another worker's counters at every look, which would seem to fall."""
    settings = {"TALLYGATE_SIDECAR_METRICS": "127.0.0.1:0", "TALLYGATE_COPY_ID": "edge"}
    sidecar = start(fresh_valkey.url, "--workers", "2", **settings)
    assert sidecar.process.stderr is not None
    lines = [sidecar.process.stderr.readline() for _ in range(2)]
    ports = [int(found[1]) for line in lines if (found := re.search(r"worker \d is watched on \S+:(\d+)", line))]
    asked = 30
    for _ in range(asked):
        sidecar.connection.close()
        assert sidecar.ask("POST", "/check", {"caller": "acme"})[0] == 200

    def decided(port: int) -> float:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        return sum(float(found) for found in re.findall(r"^tallygate_decisions_total\{.*\} (\S+)$", text, re.MULTILINE))

    wait_until(lambda: sum(decided(port) for port in ports) == asked, 5, what="all decisions of both")
    status, problem, _ = sidecar.ask("GET", "/metrics")
    assert (status, "TALLYGATE_SIDECAR_METRICS" in problem["detail"]) == (404, True)
