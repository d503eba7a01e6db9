"""How many callers one question of the settler may name: a statement must not grow with the number of those who ask.

Decides nothing about callers, and asks no database.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

#: Callers in one question, and characters of their names together.
MOST_NAMED, MOST_NAMED_BYTES = 100, 8_000


def can_be_named(callers: Collection[str]) -> bool:
    """Whether one question may name all of them."""
    return len(callers) <= MOST_NAMED and sum(map(len, callers)) <= MOST_NAMED_BYTES


def in_groups(callers: Collection[str]) -> Iterator[list[str]]:
    """Callers in groups that one question may name, in order of their names; a single long name is one by itself."""
    group: list[str] = []
    size = 0
    for caller in sorted(callers):
        if group and (len(group) >= MOST_NAMED or size + len(caller) > MOST_NAMED_BYTES):
            yield group
            group, size = [], 0
        group.append(caller)
        size += len(caller)
    if group:
        yield group
