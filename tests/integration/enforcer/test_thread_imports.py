"""What a limiter's threads do while their process may be forked at any moment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tallygate.engines.valkey import Valkey

_SCRIPT = """
import json, sys, threading, time

imported = []

def heard(event, arguments):
    if event == "import" and threading.current_thread() is not threading.main_thread():
        imported.append(arguments[0])

from enforcer import build_limiter

sys.addaudithook(heard)
limiter = build_limiter()
assert limiter.check("acme").source.name == "SHARED"
path = sys.argv[1]
for version, rate in ((2, "2"), (3, "wrong")):
    with open(path, "w") as file:
        file.write(f"{{version: {version}, plans: {{p: {{rate_per_s: {rate}, burst: 9}}}}, default_plan: p}}")
    time.sleep(1.5)
assert limiter.policy.version == 2
limiter.close()
print(json.dumps(imported))
"""


@pytest.mark.services
def test_no_thread_of_a_limiter_imports_anything(fresh_valkey: Valkey, tmp_path: Path) -> None:
    """A server that forks in the middle of an import hangs in the child, at the first request that needs the same."""
    policy = tmp_path / "policy.yaml"
    policy.write_text("{version: 1, plans: {p: {rate_per_s: 1, burst: 9}}, default_plan: p}")
    environ = {**os.environ, "TALLYGATE_POLICY": str(policy)}
    environ["TALLYGATE_OWNER_URL"] = fresh_valkey.url.replace("127.0.0.1", "localhost")
    command = [sys.executable, "-c", _SCRIPT, str(policy)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, env=environ)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []
