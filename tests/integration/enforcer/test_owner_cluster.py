"""A real cluster of masters and replicas: placed right, and a failover followed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from enforcer.errors import OwnerUnavailable
from enforcer.owners.addresses import owners_from_url
from enforcer.owners.port import Owners
from enforcer.policies.addresses import read_policy_address
from enforcer.policies.stored import StoredPolicy
from enforcer.types import Answer, Ask, Moved, Plan
from tallygate.engines.ports import claim_port
from tests.processes import kill, wait_until
from tests.services import unavailable

PLAN = Plan("still", 1e-9, 200)


def _start(folder: Path, port: int, bus: int) -> subprocess.Popen[bytes]:
    folder.mkdir()
    options = {"port": port, "cluster-port": bus}
    fixed = "--bind 127.0.0.1 --cluster-enabled yes --cluster-node-timeout 1000 --cluster-replica-validity-factor 0"
    argv = ["redis-server", *fixed.split(), *["--repl-diskless-sync-delay", "0", "--appendonly", "no", "--save"], ""]
    argv += ["--dir", str(folder)]
    for key, value in options.items():
        argv += [f"--{key}", str(value)]
    return subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _answers(port: int) -> bool:
    try:
        return bool(redis.Redis(port=port).ping())
    except redis.RedisError:
        return False


def _follows(port: int) -> bool:
    return redis.Redis(port=port).info("replication").get("master_link_status") == "up"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[dict[int, subprocess.Popen[bytes]]]:
    """Three masters and three replicas, by port."""
    if shutil.which("redis-server") is None:
        unavailable("redis-server is not installed")
    # Drawn all at once: a bus must not get the port of a node that has not started yet.
    drawn: set[int] = set()
    while len(drawn) < 12:
        drawn.add(claim_port(0, purpose="a node", setting="-", host="127.0.0.1"))
    ports, buses = sorted(drawn)[:6], sorted(drawn)[6:]
    running = {port: _start(tmp_path / str(port), port, bus) for port, bus in zip(ports, buses, strict=True)}
    try:
        wait_until(lambda: all(map(_answers, ports)), 30, what="six servers")
        argv = ["redis-cli", "--cluster", "create", *(f"127.0.0.1:{port}" for port in ports)]
        subprocess.run([*argv, "--cluster-replicas", "1", "--cluster-yes"], check=True, capture_output=True, timeout=60)
        wait_until(lambda: sum(map(_follows, ports)) == 3, 20, what="three replicas in step")
        yield running
    finally:
        for process in running.values():
            process.kill()
            process.wait()


def _ask(owners: Owners, caller: str, ask_no: int) -> Answer | Moved | None:
    asked = Ask(caller, "rate", PLAN, "gw-1/1", ask_no, (), 1, 0, 0.0, 1, 0.0)
    try:
        (outcome,) = owners.nodes[owners.place(caller, "rate")].ask([asked])
    except OwnerUnavailable:
        return None
    assert isinstance(outcome, (Answer, Moved))
    return outcome


def _policy_is_found_from(replica: int) -> None:
    """The policy's key is at whichever node holds its slot; a replica is not it."""
    stored = StoredPolicy(read_policy_address(f"redis+cluster://127.0.0.1:{replica}"))
    document = b"version: 1\nplans: {p: {rate_per_s: 1, burst: 1}}\ndefault_plan: p\n"
    assert "pushed" == stored.push(document, source="-")
    assert (document, "unchanged") == (stored.read(), stored.push(document, source="-"))
    stored.close()


@pytest.mark.services
def test_cluster_is_found_from_one_seed_and_a_failover_followed(cluster: dict[int, subprocess.Popen[bytes]]) -> None:
    """A killed master must cost its callers seconds, and the others nothing."""
    seed = next(reversed(cluster))
    owners = owners_from_url(f"redis+cluster://127.0.0.1:{seed}", timeout_s=1.0)
    callers = [f"caller-{n}" for n in range(40)]
    assert {type(_ask(owners, caller, 1)) for caller in callers} >= {Moved}
    assert owners.refresh()
    assert len(owners.nodes) == 3
    kept = dict(owners.nodes)
    wait_until(lambda: all(isinstance(_ask(owners, caller, 2), Answer) for caller in callers), 15, what="all answered")
    _policy_is_found_from(seed)
    victim = owners.place(callers[0], "rate")
    port = int(victim.rsplit(":", 1)[1].split("/")[0])
    kill(cluster[port].pid)
    asked = iter(range(3, 1_000_000))

    def followed() -> bool:
        owners.refresh()
        return isinstance(_ask(owners, callers[0], next(asked)), Answer)

    wait_until(followed, 15, what="the promoted replica's answer")
    assert victim not in owners.nodes
    assert all(owners.nodes[name] is kept[name] for name in kept if name != victim)

    def all_answered() -> bool:
        # Nodes hear of the promotion one after the other, and refuse what they are unsure of until then.
        owners.refresh()
        return all(isinstance(_ask(owners, caller, next(asked)), Answer) for caller in callers)

    wait_until(all_answered, 15, what="all answered again")
    for owner in (*owners.nodes.values(), *kept.values()):
        owner.close()
    owners.close()
