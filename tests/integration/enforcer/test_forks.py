"""Forks of a process whose limiter is at work, on a real owner: nothing is shared, and nothing hangs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from enforcer.owners.keys import bucket_key
from tallygate.engines.valkey import Valkey
from tests.servers.file_sink import SETTING, Record

ROOT = Path(__file__).resolve().parents[3]
BURST = 60
POLICY = f"""\
version: 1
plans: {{small: {{rate_per_s: 0.5, burst: {BURST}}}, large: {{rate_per_s: 1000, burst: 2000}}}}
default_plan: large
callers: {{acme: small}}
timeouts: {{ask_ms: 2000}}
"""

pytestmark = pytest.mark.services


def _run(scenario: str, owner: Valkey, folder: Path) -> Record:
    (folder / "policy.yaml").write_text(POLICY)
    environ = {**os.environ, "TALLYGATE_POLICY": str(folder / "policy.yaml"), "TALLYGATE_OWNER_URL": owner.url}
    environ |= {SETTING: str(folder / "record"), "PYTHONWARNINGS": "ignore::DeprecationWarning"}
    command = [sys.executable, "-m", "tests.servers.forking", scenario]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, cwd=ROOT, env=environ)
    assert 0 == done.returncode, done.stderr
    return Record(folder / "record")


def _members(owner: Valkey, caller: str) -> set[str]:
    """The copies that the owner knows of this caller's bucket."""
    with redis.Redis(port=owner.port) as client:
        names: list[bytes] = client.hkeys(bucket_key(caller, "rate"))
    return {name.decode() for name in names} - {"bucket"}


def test_a_fork_neither_spends_nor_settles_what_its_parent_holds(fresh_valkey: Valkey, tmp_path: Path) -> None:
    """Two processes with one copy's epoch would spend its tokens twice, and number two decisions alike."""
    record = _run("plain", fresh_valkey, tmp_path)
    record.assert_adds_up()
    assert 4 == len(record.served)
    assert _members(fresh_valkey, "acme") <= set(record.served)
    assert BURST <= record.decisions["acme", True] <= BURST + 10
    assert 4 * 30 + 7 == record.decisions.total()


def test_locks_and_counts_of_the_parent_hold_up_nobody_in_the_child(fresh_valkey: Valkey, tmp_path: Path) -> None:
    """The thread that would release them is not there: a lock, or a slot below the cap, would stay taken for ever."""
    record = _run("locked", fresh_valkey, tmp_path)
    record.assert_adds_up()
    assert 2 == len(record.served)


def test_children_of_multiprocessing_settle_at_their_end(fresh_valkey: Valkey, tmp_path: Path) -> None:
    """It ends them without what is registered at exit: their grants would be lost, and their record too."""
    record = _run("several", fresh_valkey, tmp_path)
    record.assert_adds_up()
    assert 3 == len(record.served)
    assert 2 * 30 + 2 == record.decisions.total()


def test_an_asgi_application_that_is_forked_goes_on_in_each_worker(fresh_valkey: Valkey, tmp_path: Path) -> None:
    """A server that preloads it would answer every request of its workers with an error."""
    record = _run("asgi", fresh_valkey, tmp_path)
    record.assert_adds_up()
    assert [30, 30, 30] == [len(life.seqs) for life in record.served.values()]
    assert BURST <= record.decisions["acme", True] <= BURST + 10
