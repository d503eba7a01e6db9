"""The ports to the one owner of a caller's bucket, and to all owners of a fleet.

Two implementations stand beside it, `memory` and `redis`; both pass `tests/contract/owner.py` and agree
with the pure specification in `core/`. An owner never decides about a single request and never learns of Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from enforcer.messages import Answer, Ask, AskFault


@runtime_checkable
class Owner(Protocol):
    """Grants, settles and counts k. Called from one thread: the asker's."""

    def ask(self, asks: Sequence[Ask]) -> Sequence[Answer | AskFault]:
        """Settle and grant for many buckets in one round trip; the outcomes stand in the order of the asks.

        An ask with neither `waiting` nor `want` only settles. An `AskFault` stands for a bucket that could not be
        read; that ask took nothing, and the others are answered all the same.

        Raises:
            OwnerUnavailable: no answer within the timeout, or the owner refuses to decide at all. Any of the asks may
                or may not have taken effect; a later ask with a higher `ask_no` puts that right.
        """
        ...

    def probe(self) -> None:
        """Prove that an ask would be answered now: do all that one does, for a bucket that no caller has.

        Raises:
            OwnerUnavailable: no answer within the timeout, or the owner is there but refuses to decide.
        """
        ...

    def close(self) -> None:
        """Release connections; safe to call twice."""
        ...


class Owners(Protocol):
    """The nodes that hold buckets, and which of them holds which."""

    @property
    def nodes(self) -> Mapping[str, Owner]:
        """By name, the address without credentials; a node's owner stays the same object for as long as it stays."""
        ...

    @property
    def version(self) -> int:
        """Rises whenever the placing changed; whoever was placed before is then placed again."""
        ...

    def place(self, caller: str, limit: str) -> str:
        """Name of the node that holds this bucket. Cheap, no I/O."""
        ...

    def refresh(self) -> bool:
        """Look whether the placing changed, with I/O if need be and not too often; returns whether it did."""
        ...

    def close(self) -> None:
        """Release what is held beside the nodes' own connections; safe to call twice."""
        ...
