"""Redis Cluster: which master holds which slot, learnt from any node that can be reached, and followed.

Replicas are never asked. Before the first `refresh` the seeds stand for the masters: an ask at the wrong one is
followed to the right one, as is one whose bucket moved or is on its way to another node.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from redis.crc import key_slot

from enforcer.owners.asking import ask_server
from enforcer.owners.following import ClusterNode, Redirecting
from enforcer.owners.keys import bucket_key
from enforcer.owners.looking import Lookup
from enforcer.owners.port import Owner
from enforcer.owners.servers import checked_address

SLOTS = 16_384


class ClusterOwners:
    """Implements `Owners`. A master that is gone is no longer among the nodes; whoever asks it closes it."""

    def __init__(
        self,
        seeds: list[str],
        *,
        url_of: Callable[[str, int], str],
        owner_of: Callable[[str], Redirecting],
        timeout_s: float,
        ask: Callable[..., Any] = ask_server,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the seeds; nothing is sent yet.

        Args:
            seeds: addresses of some nodes, with credentials; at least one.
            url_of: the address of a node, with credentials, by host and port.
            owner_of: the owner at an address.
            timeout_s: for each node that is asked for the topology.
            ask: puts one command to one address.
            monotonic: seconds; the topology is asked for twice a second at most.
        """
        self._seeds = seeds
        self._url_of, self._owner_of = url_of, owner_of
        self._lookup = Lookup((b"CLUSTER", b"SLOTS"), timeout_s=timeout_s, ask=ask, monotonic=monotonic)
        self._urls = {checked_address(seed): seed for seed in seeds}
        self._nodes: dict[str, Owner] = {name: self._node(url) for name, url in self._urls.items()}
        names = list(self._nodes)
        self._table = [names[slot % len(names)] for slot in range(SLOTS)]
        self._version = 0

    @property
    def nodes(self) -> Mapping[str, Owner]:
        """See `Owners.nodes`."""
        return self._nodes

    @property
    def version(self) -> int:
        """See `Owners.version`."""
        return self._version

    def place(self, caller: str, limit: str) -> str:
        """See `Owners.place`."""
        return self._table[key_slot(bucket_key(caller, limit))]

    def refresh(self) -> bool:
        """See `Owners.refresh`. Where no node answers, everything stays as it is."""
        return self._lookup.learn([*self._urls.values(), *self._seeds], self._heard)

    def close(self) -> None:
        """See `Owners.close`."""

    def _heard(self, url: str, reply: object) -> bool | None:
        ranges = [
            (first, last, self._url_of(host or _host(url), port)) for first, last, host, port in read_slots(reply)
        ]
        return self._take(ranges) if ranges else None

    def _node(self, url: str) -> ClusterNode:
        return ClusterNode(
            self._owner_of(url), other=lambda host, port: self._owner_of(self._url_of(host or _host(url), port))
        )

    def _take(self, ranges: list[tuple[int, int, str]]) -> bool:
        urls = {checked_address(url): url for _, _, url in ranges}
        table = list(self._table)
        for first, last, url in ranges:
            table[first : last + 1] = [checked_address(url)] * (last + 1 - first)
        # A slot that nobody serves stays where it was, unless that node is gone.
        some = next(iter(urls))
        table = [name if name in urls else some for name in table]
        if table == self._table and urls.keys() == self._nodes.keys():
            return False
        known = self._nodes
        nodes = {name: known[name] if name in known else self._node(url) for name, url in urls.items()}
        # Nodes first: whoever places by the new table finds them.
        self._nodes = {**known, **nodes}
        self._table = table
        self._nodes = nodes
        self._urls = urls
        self._version += 1
        return True


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


def read_slots(reply: object) -> Iterator[tuple[int, int, str, int]]:
    """First slot, last slot, host and port of the master, of each range of ``CLUSTER SLOTS``.

    The host is empty where the node does not tell it, or does not know its own: it is then the one that was asked.

    Raises:
        ValueError: the reply has another form.
    """
    if not isinstance(reply, list):
        raise ValueError(f"CLUSTER SLOTS replied {type(reply).__name__}")  # noqa: TRY004 - a reply, not an argument
    for entry in reply:
        match entry:
            case [int(first), int(last), [host, int(port), *_], *_] if 0 <= first <= last < SLOTS:
                name = host.decode("ascii", "replace") if isinstance(host, bytes) else ""
                yield first, last, "" if name == "?" else name, port
            case _:
                raise ValueError("CLUSTER SLOTS replied with a range of another form")
