"""What `tallygate envoy` was asked stands on the log, as it was answered, also across an end."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from enforcer.envoy.stubs import METHOD, SERVICE, RateLimitResponse, grpc
from enforcer.types import Reason
from tallygate.engines.ports import free_port
from tallygate.engines.process import Command, accepts_connections, spawn
from tallygate.engines.valkey import Valkey
from tests.e2e.envoy.stack import EXAMPLE, READY_S, ROOT
from tests.log_reader import read_log
from tests.services import KafkaService
from tests.unit.enforcer.envoy.calls import call, descriptor

pytestmark = pytest.mark.services


def test_decisions_of_envoy_are_on_the_log_as_they_were_answered(
    tmp_path: Path, fresh_valkey: Valkey, embedded_broker: KafkaService
) -> None:
    """Support is asked about refusals by Envoy as by any other gateway."""
    port = free_port()
    environ = {
        **os.environ,
        "TALLYGATE_POLICY": str(EXAMPLE / "policy.yaml"),
        "TALLYGATE_OWNER_URL": fresh_valkey.url,
        "TALLYGATE_ENVOY": f"127.0.0.1:{port}",
        "TALLYGATE_KAFKA": embedded_broker.bootstrap,
        "TALLYGATE_COPY_ID": "envoy-1",
    }
    command = [sys.executable, "-m", "tallygate", "envoy"]
    service = spawn(Command("service", command, tmp_path / "service.log", environ=environ, cwd=ROOT))
    with service:
        service.wait_ready(lambda: accepts_connections("127.0.0.1", port), timeout_s=READY_S)
        told: Counter[tuple[str, bool]] = Counter()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            ask: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{SERVICE}/{METHOD}")
            for number in range(40):
                account = ("marlow", "acme")[number % 2]
                message = call(descriptor(account=account, method="GET", path="/items/7"))
                answer = RateLimitResponse.FromString(ask(message, timeout=20))
                told[account, answer.overall_code == RateLimitResponse.OK] += 1
        began_s = time.monotonic()
        service.ask_to_end()
        assert 0 == service.wait(15)
        assert time.monotonic() - began_s < 7
    log = read_log(embedded_broker.bootstrap, lambda log: len(log.identities()) >= 40, timeout_s=20)
    assert list(range(40)) == sorted(seq for _, _, seq in log.identities())
    recorded: Counter[tuple[str, bool]] = Counter()
    for block in log.blocks:
        for basis, code in zip(block.basis.tolist(), block.code.tolist(), strict=True):
            caller = block.bases.callers[block.bases.caller[basis]]
            recorded[caller, Reason(code & 15) is Reason.NONE] += 1
    assert told == recorded
    assert told["marlow", False] > 0
