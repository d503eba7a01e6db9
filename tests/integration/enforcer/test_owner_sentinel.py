"""A real master with a replica and a sentinel: the master is killed, and its callers are answered by the other."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from enforcer.errors import OwnerUnavailable, PolicyAway
from enforcer.owners.addresses import owners_from_url
from enforcer.policies.addresses import read_policy_address
from enforcer.policies.stored import StoredPolicy
from tallygate.engines.ports import claim_port
from tests.processes import kill, wait_until
from tests.services import unavailable

_POLICY = b"version: 1\nplans: {p: {rate_per_s: 1, burst: 1}}\ndefault_plan: p\n"


class Watched:
    """Master, replica and sentinel, in this order."""

    def __init__(self, folder: Path) -> None:
        master, replica, sentinel = (claim_port(0, purpose="a server", setting="-", host="127.0.0.1") for _ in range(3))
        plain = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"]
        rules = folder / "sentinel.conf"
        rules.write_text(
            f"port {sentinel}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {master} 1\n"
            "sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 2000\n"
        )
        self.sentinel = sentinel
        self.replica = replica
        self.running = [
            _spawn([*plain, "--port", str(master), "--dir", str(folder)]),
            _spawn([*plain, "--port", str(replica), "--dir", str(folder), "--replicaof", "127.0.0.1", str(master)]),
        ]
        wait_until(self.follows, 20, what="the replica in step")
        self.running.append(_spawn([str(rules), "--sentinel"]))

    def follows(self) -> bool:
        """Whether the replica is in step."""
        try:
            return redis.Redis(port=self.replica).info("replication").get("master_link_status") == "up"
        except redis.RedisError:
            return False

    def stop(self) -> None:
        """End all."""
        for process in self.running:
            process.kill()
            process.wait()


def _spawn(words: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["redis-server", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    """One of each."""
    if shutil.which("redis-server") is None:
        unavailable("redis-server is not installed")
    made = Watched(tmp_path)
    yield made
    made.stop()


@pytest.mark.services
def test_failover_is_followed_and_the_node_stays_the_same(watched: Watched) -> None:
    """The asker keeps its owner: only the server behind it changes."""
    owners = owners_from_url(f"redis+sentinel://127.0.0.1:{watched.sentinel}/main", timeout_s=1.0)
    (node,) = owners.nodes.values()

    def answers() -> bool:
        try:
            node.probe()
        except OwnerUnavailable:
            owners.refresh()
            return False
        return True

    wait_until(answers, 15, what="the master's answer")
    wait_until(lambda: _replicas_known(watched.sentinel) == 1, 20, what="the replica known to the sentinel")
    stored = StoredPolicy(read_policy_address(f"redis+sentinel://127.0.0.1:{watched.sentinel}/main"))
    assert "pushed" == stored.push(_POLICY, source="-")
    wait_until(lambda: redis.Redis(port=watched.replica).exists("tallygate:policy") == 1, 20, what="the policy's copy")
    kill(watched.running[0].pid)
    assert not answers()
    wait_until(answers, 20, what="the promoted replica's answer")
    assert [node] == list(owners.nodes.values())
    with pytest.raises(PolicyAway):
        stored.read()
    assert _POLICY == stored.read(), "the policy is followed to the new master"
    stored.close()
    node.close()
    owners.close()


def _replicas_known(sentinel: int) -> int:
    info = redis.Redis(port=sentinel).info("sentinel")
    return int(info["master0"]["slaves"])
