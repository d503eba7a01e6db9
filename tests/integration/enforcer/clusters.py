"""A real cluster on this machine: made, resharded slot by slot, grown and shrunk as an operator does."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from enforcer.errors import OwnerUnavailable
from enforcer.owners.asking import ask_server
from enforcer.owners.cluster import read_slots
from tests.integration.enforcer.servers import answers, free_port, spawn_redis
from tests.processes import wait_until

FIXED = {"cluster_enabled": "yes", "cluster_node_timeout": 1000, "cluster_replica_validity_factor": 0}
#: Else a master without slots becomes a replica of the one that has them.
FIXED |= {"cluster_allow_replica_migration": "no"}


class Cluster:
    """Its nodes by port. The first `masters` of them hold the slots."""

    def __init__(self, folder: Path, *, masters: int, replicas: int = 0, **options: object) -> None:
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self._folder, self._options = folder, options
        # Drawn all at once: a bus must not get the port of a node that has not started yet.
        drawn: set[int] = set()
        while len(drawn) < 2 * (masters + replicas + 1):
            drawn.add(free_port())
        self._ports = sorted(drawn)
        ports = [self.start() for _ in range(masters + replicas)]
        argv = ["redis-cli", "--cluster", "create", *(f"127.0.0.1:{port}" for port in ports)]
        argv += ["--cluster-replicas", str(replicas // masters), "--cluster-yes"]
        subprocess.run(argv, check=True, capture_output=True, timeout=60)
        wait_until(lambda: sum(map(self.follows, ports)) == replicas, 20, what="replicas in step")
        wait_until(lambda: all(map(self.is_settled, ports)), 20, what="the cluster's agreement")

    @property
    def ports(self) -> list[int]:
        """Of the nodes that run."""
        return list(self.running)

    @property
    def url(self) -> str:
        """By one of its nodes."""
        return f"redis+cluster://127.0.0.1:{self.ports[0]}"

    def start(self) -> int:
        """Start one more server; the cluster does not know it yet."""
        port, bus = self._ports.pop(0), self._ports.pop()
        folder = self._folder / str(port)
        self.running[port] = spawn_redis(folder, port=port, cluster_port=bus, **FIXED, **self._options)
        wait_until(lambda: answers(port), 30, what="a server")
        return port

    def add(self) -> int:
        """Start one more node without slots."""
        port = self.start()
        known = self.ports[0]
        bus = self.say(known, "CLUSTER", "NODES").decode().split("myself")[0].split("@")[-1].split()[0].split(",")[0]
        self.say(port, "CLUSTER", "MEET", "127.0.0.1", str(known), bus)
        wait_until(lambda: all(map(self.is_settled, self.ports)), 20, what="the new node's acquaintance")
        return port

    def remove(self, port: int) -> None:
        """End a node that has no slots any more."""
        gone = self.id_of(port)
        process = self.running.pop(port)
        process.kill()
        process.wait()
        for other in self.ports:
            self.say(other, "CLUSTER", "FORGET", gone)

    def stop(self) -> None:
        """End all."""
        for process in self.running.values():
            process.kill()
            process.wait()

    def say(self, port: int, *words: str | bytes) -> Any:
        """Put a command to a node."""
        return ask_server(f"redis://127.0.0.1:{port}/0", words, timeout_s=5.0)

    def id_of(self, port: int) -> str:
        """A node's name for itself."""
        return str(self.say(port, "CLUSTER", "MYID").decode())

    def follows(self, port: int) -> bool:
        """Whether it is a replica in step."""
        return b"master_link_status:up" in self.say(port, "INFO", "replication")

    def is_settled(self, port: int) -> bool:
        """Whether it sees all slots served, and knows all nodes."""
        try:
            info = self.say(port, "CLUSTER", "INFO")
        except OwnerUnavailable:
            return False
        return b"cluster_state:ok" in info and b"cluster_known_nodes:%d" % len(self.running) in info

    def holder(self, slot: int) -> int:
        """Port of the master that serves a slot."""
        ranges = read_slots(self.say(self.ports[0], "CLUSTER", "SLOTS"))
        return next(port for first, last, _, port in ranges if first <= slot <= last)

    def begin(self, slots: Sequence[int], source: int, target: int) -> None:
        """Say that these slots are on their way."""
        for slot in slots:
            self.say(target, "CLUSTER", "SETSLOT", str(slot), "IMPORTING", self.id_of(source))
            self.say(source, "CLUSTER", "SETSLOT", str(slot), "MIGRATING", self.id_of(target))

    def move_keys(self, slot: int, source: int, target: int) -> int:
        """Move what is in the slot by now; returns how many keys."""
        keys = self.say(source, "CLUSTER", "GETKEYSINSLOT", str(slot), "1000")
        if keys:
            self.say(source, "MIGRATE", "127.0.0.1", str(target), "", "0", "5000", "KEYS", *keys)
        return len(keys)

    def end(self, slots: Sequence[int], source: int, target: int) -> None:
        """Give the slots to the target, first in its own eyes."""
        to = self.id_of(target)
        for slot in slots:
            for port in (target, source, *(port for port in self.ports if port not in {source, target})):
                self.say(port, "CLUSTER", "SETSLOT", str(slot), "NODE", to)

    def count(self, port: int, command: str) -> int:
        """How often a node was told this."""
        lines = self.say(port, "INFO", "commandstats").decode().splitlines()
        return next((int(line.split("calls=")[1].split(",")[0]) for line in lines if f"_{command}:" in line), 0)


@contextmanager
def cluster_of(folder: Path, *, masters: int, replicas: int = 0, **options: object) -> Iterator[Cluster]:
    """A cluster for as long as the block lasts."""
    made: Cluster | None = None
    try:
        made = Cluster(folder, masters=masters, replicas=replicas, **options)
        yield made
    finally:
        if made is not None:
            made.stop()
