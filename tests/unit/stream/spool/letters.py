"""Letters for tests of the spool."""

from __future__ import annotations

from stream.contract.topics import DECISIONS
from stream.outbox import Letter


def block(first_seq: int, *, decisions: int = 5, size: int = 100) -> Letter:
    """A letter as a block of decisions makes it; its value says which it is."""
    value = (b"%d " % first_seq).ljust(size, b".")
    return Letter(DECISIONS.name, b"gw-1", value, [("ce_id", b"d%d" % first_seq)], None, first_seq, decisions)


def blocks(count: int, *, size: int = 100) -> list[Letter]:
    """So many, one behind the other."""
    return [block(number * 5, size=size) for number in range(count)]
