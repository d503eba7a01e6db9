"""The example folders of the Python frameworks, started and called as their READMEs say, on real engines."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from stream.contract.control import CopyStarted, CopyStopped
from tallygate.engines.ports import free_port
from tallygate.engines.valkey import Valkey
from tests.docs.snippets import snippets
from tests.log_reader import Log, read_log
from tests.servers.running import ROOT, launched
from tests.services import KafkaService

REQUESTS = 31


@pytest.mark.services
@pytest.mark.parametrize("example", ["flask", "fastapi", "django"])
def test_the_example_refuses_and_records_as_its_readme_says(
    example: str, apache_broker: KafkaService, fresh_valkey: Valkey, tmp_path: Path
) -> None:
    """What a newcomer copies first must run: the plan is kept by all workers together, and every answer recorded."""
    port = str(free_port())
    start, call = (body.replace("8000", port) for body in snippets(ROOT / "examples" / example / "README.md", "sh"))
    settings = {"TALLYGATE_OWNER_URL": fresh_valkey.url, "TALLYGATE_KAFKA": apache_broker.bootstrap}
    settings["TALLYGATE_COPY_ID"] = f"example-{example}"
    argv = ["bash", "-c", start.replace(".venv/bin/", "exec .venv/bin/")]
    with launched(argv, log=tmp_path / "log", settings=settings) as server:
        called = subprocess.run(["bash", "-c", call], check=True, capture_output=True, text=True, timeout=60)
        server.stop()
    codes, _, last = called.stdout.partition("HTTP/1.1 ")
    seen = Counter([*codes.split(), last.split()[0]])
    assert REQUESTS == seen.total()
    assert {"200", "429"} == set(seen)
    assert 10 <= seen["200"] < 20, called.stdout
    assert {"ratelimit-policy: ", "ratelimit: "} <= {line.lower()[: line.find(":") + 2] for line in last.splitlines()}
    log = read_log(apache_broker.bootstrap, lambda log: 0 < _said(log, CopyStopped) == _said(log, CopyStarted))
    assert REQUESTS == len(set(log.identities())) == len(log.identities())


def _said(log: Log, kind: type[CopyStarted | CopyStopped]) -> int:
    return sum(isinstance(event, kind) for event in log.control)
