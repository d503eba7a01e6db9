"""A process that records to Kafka is forked: on a real broker, each process has its own part of the record, whole."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from stream.contract.control import CopyStopped
from tests.log_reader import Log, read_log
from tests.services import KafkaService

ROOT = Path(__file__).resolve().parents[3]
POLICY = "version: 1\nplans: {small: {rate_per_s: 1, burst: 50}}\ndefault_plan: small\n"


@pytest.mark.services
def test_parent_and_children_each_ship_their_own_record(
    apache_broker: KafkaService, valkey_url: str, tmp_path: Path
) -> None:
    """Neither the client nor its thread survives a fork: a child that used them would record nothing, or hang."""
    (tmp_path / "policy.yaml").write_text(POLICY)
    environ = {**os.environ, "TALLYGATE_POLICY": str(tmp_path / "policy.yaml"), "TALLYGATE_OWNER_URL": valkey_url}
    environ |= {"TALLYGATE_KAFKA": apache_broker.bootstrap, "PYTHONWARNINGS": "ignore::DeprecationWarning"}
    command = [sys.executable, "-m", "tests.servers.forking", "recording"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, cwd=ROOT, env=environ)
    assert 0 == done.returncode, done.stderr
    log = read_log(apache_broker.bootstrap, lambda log: len(_stopped(log)) == 4)
    seen = Counter((copy_id, epoch) for copy_id, epoch, _ in log.identities())
    assert [30, 30, 30, 90] == sorted(seen.values())
    assert len(log.identities()) == len(set(log.identities()))
    assert [] == log.lost()


def _stopped(log: Log) -> list[CopyStopped]:
    return [event for event in log.control if isinstance(event, CopyStopped)]
