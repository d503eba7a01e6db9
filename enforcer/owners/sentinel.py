"""One master that sentinels watch: its address is asked of them, and its failover followed.

The service is one node with one name; which server stands behind it changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from enforcer.errors import OwnerUnavailable
from enforcer.messages import Answer, Ask, AskFault
from enforcer.owners.asking import ask_server
from enforcer.owners.looking import Lookup
from enforcer.owners.port import Owner


class FollowedOwner:
    """Implements `Owner` on whichever master was found last; it is changed only between two calls."""

    def __init__(self, name: str, *, find: Callable[[], str]) -> None:
        """No master is known yet: `find` looks for it at the first use, and says why there is none."""
        self._name = name
        self._find = find
        self._current: Owner | None = None
        self._coming: Owner | None = None
        self._closed = False

    def follow(self, owner: Owner) -> None:
        """Ask this one from the next call on. From any thread."""
        self._coming = owner

    def ask(self, asks: Sequence[Ask]) -> Sequence[Answer | AskFault]:
        """See `Owner.ask`."""
        return self._owner().ask(asks)

    def probe(self) -> None:
        """See `Owner.probe`."""
        self._owner().probe()

    def close(self) -> None:
        """See `Owner.close`."""
        self._closed = True
        for owner in (self._current, self._coming):
            if owner is not None:
                owner.close()

    def _owner(self) -> Owner:
        if self._closed:
            raise OwnerUnavailable("it is closed", where=f"at {self._name}")
        why = self._find() if self._current is None and self._coming is None else ""
        coming = self._coming
        if coming is not None and coming is not self._current:
            if self._current is not None:
                self._current.close()
            self._current = coming
        if self._current is None:
            raise OwnerUnavailable(f"no sentinel names its master: {why}", where=f"at {self._name}")
        return self._current


class SentinelOwners:
    """Implements `Owners` for one service."""

    def __init__(
        self,
        sentinels: list[str],
        service: str,
        *,
        name: str,
        url_of: Callable[[str, int], str],
        owner_of: Callable[[str], Owner],
        timeout_s: float,
        ask: Callable[..., Any] = ask_server,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the sentinels' addresses; nothing is sent until `refresh`. See `ClusterOwners` for the rest."""
        self._sentinels, self._name = sentinels, name
        self._url_of, self._owner_of = url_of, owner_of
        question = (b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", service)
        self._lookup = Lookup(question, timeout_s=timeout_s, ask=ask, monotonic=monotonic)
        self._master = ""
        self._owner = FollowedOwner(name, find=self._find)
        self._nodes = {name: self._owner}

    @property
    def nodes(self) -> Mapping[str, Owner]:
        """See `Owners.nodes`."""
        return self._nodes

    @property
    def version(self) -> int:
        """See `Owners.version`: buckets are always at the service, whoever is its master."""
        return 0

    def place(self, caller: str, limit: str) -> str:  # noqa: ARG002 - the port's: here all are in one place
        """See `Owners.place`."""
        return self._name

    def refresh(self) -> bool:
        """See `Owners.refresh`."""
        return self._lookup.learn(self._sentinels, self._heard)

    def close(self) -> None:
        """See `Owners.close`."""

    def _find(self) -> str:
        self.refresh()
        return self._lookup.failure or "they are being asked"

    def _heard(self, _sentinel: str, reply: object) -> bool | None:
        match reply:
            case [bytes(host), bytes(port)] if port.isdigit():
                url = self._url_of(host.decode("ascii", "replace"), int(port))
                if url == self._master:
                    return False
                self._owner.follow(self._owner_of(url))
                self._master = url
                return True
        return None
