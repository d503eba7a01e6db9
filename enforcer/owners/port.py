"""The port to the one owner of a caller's bucket.

Two implementations stand beside it, `owner_memory` and `owner_redis`; both pass `tests/contract/owner.py` and agree
with the pure specification in `core/`. An owner never decides about a single request and never learns of Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from enforcer.types import Answer, Ask, AskFault


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
