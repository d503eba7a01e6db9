"""What changed after it had been reported: the versions of settled minutes as a list of revisions, and their causes.

Pure. A minute of a caller is reported when its totals are settled for the first time; each later change is a revision.
So is a first report that came late, for before it nothing was said of the minute.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from aggregator.core.settled.settling import MINUTE_US

#: A first report is late when it comes so long after the minute's end.
ON_TIME_US = 5 * MINUTE_US
#: (offered, admitted, tokens charged).
Counts: TypeAlias = tuple[int, int, int]
_NONE: Counts = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Version:
    """One row of the settled minutes of one caller."""

    minute: int
    scope: str
    version: int
    stored_us: int
    counts: Counts


@dataclass(frozen=True, slots=True)
class Block:
    """Where `decisions` of one caller's minute stand in the log, and when that was stored; None if no longer known."""

    minute: int
    copy_id: str
    epoch: int
    log_partition: int
    log_offset: int
    decisions: int
    stored_us: int | None = None


@dataclass(frozen=True, slots=True)
class Revision:
    """A change of one minute's totals, or of several by `grouped`: by how much, when, and the blocks behind it.

    `first`: nothing had been reported before.
    """

    minute: int
    stored_us: int
    change: Counts
    first: bool = False
    blocks: tuple[Block, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Flush:
    """One row of the journal: which offsets of a partition, when they were stored, which minutes they dirtied."""

    log_partition: int
    first_offset: int
    next_offset: int
    stored_us: int
    minutes: frozenset[int]


def revisions(versions: Iterable[Version]) -> list[Revision]:
    """The revisions among all versions of some minutes of one caller, by minute and time.

    What was written late by a settler that lagged (a lower version than one that was there before) was never reported.
    """
    minutes: dict[int, list[Version]] = defaultdict(list)
    for version in versions:
        minutes[version.minute].append(version)
    return [revision for minute in sorted(minutes) for revision in _of_minute(minute, minutes[minute])]


def _of_minute(minute: int, versions: list[Version]) -> list[Revision]:
    held: dict[str, tuple[int, Counts]] = {}
    reports: dict[int, Counts] = {}
    for one in sorted(versions, key=lambda one: (one.stored_us, one.version, one.scope)):
        highest, counts = held.get(one.scope, (0, _NONE))
        if one.version < highest:
            continue
        held[one.scope] = (one.version, one.counts)
        reports[one.stored_us] = _plus(reports.get(one.stored_us, _NONE), _minus(one.counts, counts))
    found = []
    for place, (stored_us, change) in enumerate(reports.items()):
        late = stored_us > (minute + 1) * MINUTE_US + ON_TIME_US
        if any(change) and (place > 0 or late):
            found.append(Revision(minute, stored_us, change, first=place == 0))
    return found


def placed(blocks: Iterable[Block], flushes: Sequence[Flush]) -> list[Block]:
    """The blocks, each with the time at which the journal first says that it was stored."""
    return [_with_time(block, flushes) for block in blocks]


def _with_time(block: Block, flushes: Sequence[Flush]) -> Block:
    stored_us = min(
        (
            flush.stored_us
            for flush in flushes
            if flush.log_partition == block.log_partition
            and flush.first_offset <= block.log_offset < flush.next_offset
            and block.minute in flush.minutes
        ),
        default=None,
    )
    return Block(
        block.minute, block.copy_id, block.epoch, block.log_partition, block.log_offset, block.decisions, stored_us
    )


def explained(
    found: Iterable[Revision], blocks: Iterable[Block], first_reports_us: Mapping[int, int]
) -> list[Revision]:
    """The revisions with the blocks that were stored after the report before, and not after the revision itself.

    Args:
        found: revisions of minutes.
        blocks: what is known of the log of those minutes.
        first_reports_us: when each minute was first reported.
    """
    of_minute: dict[int, list[Block]] = defaultdict(list)
    for block in blocks:
        if block.stored_us is not None:
            of_minute[block.minute].append(block)
    before_us = dict(first_reports_us)
    told = []
    for one in sorted(found, key=lambda one: (one.minute, one.stored_us)):
        after_us = -1 if one.first else before_us.get(one.minute, -1)
        own = tuple(block for block in of_minute[one.minute] if after_us < (block.stored_us or 0) <= one.stored_us)
        before_us[one.minute] = one.stored_us
        told.append(Revision(one.minute, one.stored_us, one.change, one.first, own))
    return told


def grouped(found: Iterable[Revision], minutes: int) -> list[Revision]:
    """Revisions that were made together, of minutes in the same stretch of so many (60: an hour), as one."""
    groups: dict[tuple[int, int], list[Revision]] = defaultdict(list)
    for one in found:
        groups[one.minute // minutes * minutes, one.stored_us].append(one)
    return [
        Revision(
            start, stored_us, _sum(one.change for one in group), all(one.first for one in group),
            tuple(block for one in group for block in one.blocks),
        )
        for (start, stored_us), group in sorted(groups.items())
    ]  # fmt: skip


def first_reports(versions: Iterable[Version]) -> dict[int, int]:
    """When each minute was first reported."""
    first: dict[int, int] = {}
    for one in versions:
        first[one.minute] = min(one.stored_us, first.get(one.minute, one.stored_us))
    return first


def _plus(left: Counts, right: Counts) -> Counts:
    return (left[0] + right[0], left[1] + right[1], left[2] + right[2])


def _minus(left: Counts, right: Counts) -> Counts:
    return (left[0] - right[0], left[1] - right[1], left[2] - right[2])


def _sum(changes: Iterable[Counts]) -> Counts:
    total = _NONE
    for change in changes:
        total = _plus(total, change)
    return total
