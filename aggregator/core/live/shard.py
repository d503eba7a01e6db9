"""The state of one source partition: what its log says up to one offset, minute by minute.

Holds and names; the arithmetic is in `live_totals`. Never talks to Kafka or ClickHouse, never reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from aggregator.core.live.callers import CallersTable
from aggregator.core.live.cells import CellIndex
from aggregator.core.live.tables import Interner, TotalsTable, names_interner
from aggregator.core.live.usage import UsageTable
from stream.contract.block import Int64s

#: (copy_id, epoch): one copy in one life.
CopyKey = tuple[str, int]
#: (name, rate_per_s, burst).
PlanKey = tuple[str, float, int]


@dataclass(frozen=True, slots=True)
class ShardBounds:
    """How much of what is stored a shard keeps in memory.

    Attributes:
        minutes: minutes, the ones touched last.
        rows: rows of these minutes; the last two minutes stay however many they have.
        copies: copies, the ones heard of last.
        names: distinct callers, scopes, plans and combinations of them, which are only ever forgotten all at once.
    """

    minutes: int = 10
    rows: int = 500_000
    copies: int = 10_000
    names: int = 2_000_000


_CODE_BITS, VERSION_BITS = 8, 32


class Minute:
    """One minute's totals, and when it was last added to (as an offset)."""

    __slots__ = ("callers", "fleet", "touched_at", "usage")

    def __init__(self, touched_at: int) -> None:
        self.usage = UsageTable()
        self.fleet = TotalsTable()
        self.callers = CallersTable()
        self.touched_at = touched_at

    @property
    def rows(self) -> int:
        """How many rows it holds, of all kinds."""
        return self.usage.index.count + self.fleet.index.count + self.callers.index.count

    @property
    def dirty(self) -> bool:
        """Whether anything changed since the last cut."""
        return self.usage.dirty or self.fleet.dirty or self.callers.dirty


@dataclass(slots=True)
class CopyMark:
    """How far a copy's epoch has been counted: every seq below `next_seq` has been, or is a counted gap."""

    next_seq: int = 0
    sealed_at_us: int = 0
    #: What was added to the times of its last block to make up for a wrong clock.
    shift_us: int = 0
    dirty: bool = False


@dataclass(slots=True)
class Shard:
    """State of one source partition: everything up to, not including, `next_offset`.

    `base` is the version at which this log began in the database: 0, unless the topic was deleted and made anew.
    The version of what is written is `base + next_offset`.
    """

    partition: int
    log_id: str
    base: int
    next_offset: int
    minutes: dict[int, Minute] = field(default_factory=dict)
    copies: dict[CopyKey, CopyMark] = field(default_factory=dict)
    #: Minutes that the table is known not to hold: they begin empty when they are touched.
    blank: set[int] = field(default_factory=set)
    callers: Interner[str] = field(default_factory=names_interner)
    scopes: Interner[str] = field(default_factory=Interner)
    plans: Interner[PlanKey] = field(default_factory=Interner)
    cells: CellIndex = field(default_factory=CellIndex)
    fleet_cells: Interner[int] = field(default_factory=Interner)
    #: An upper bound of the rows that changed since the last cut.
    changed_rows: int = 0
    #: Rows that were read from the database since something was last forgotten.
    loaded_rows: int = 0
    #: Where the last cut was made; `next_offset` beyond it means that there is something to write.
    cut_offset: int = -1

    def __post_init__(self) -> None:
        self.cut_offset = self.next_offset

    @property
    def version(self) -> int:
        """The version of rows that state what this shard holds now."""
        return self.base + self.next_offset

    @property
    def rows(self) -> int:
        """Rows held in memory."""
        return sum(minute.rows for minute in self.minutes.values())

    @property
    def unwritten(self) -> bool:
        """Whether it has gone on since the last cut."""
        return self.next_offset > self.cut_offset

    @property
    def names(self) -> int:
        """Distinct names held in memory, of all kinds; forgotten only with the whole shard."""
        interned = (self.callers, self.scopes, self.plans, self.fleet_cells)
        return len(self.cells) + sum(len(kind) for kind in interned)

    def minute(self, number: int) -> Minute:
        """A minute that is loaded, or blank.

        Raises:
            KeyError: it is neither.
        """
        found = self.minutes.get(number)
        if found is None:
            self.blank.remove(number)
            found = self.minutes[number] = Minute(self.next_offset)
        return found

    def skip_to(self, next_offset: int) -> None:
        """Move past offsets that hold nothing to count: an unreadable block, or what retention has removed."""
        self.next_offset = next_offset


def evict(shard: Shard, kept: ShardBounds) -> None:
    """Forget clean minutes and copies beyond what is kept, longest untouched first; the last two minutes stay.

    What was forgotten is loaded again when it is touched. Only to be called while nothing is being written.
    """
    shard.loaded_rows = 0
    by_age = sorted(shard.minutes.items(), key=lambda item: (item[1].touched_at, item[0]))
    held = shard.rows
    for number, minute in by_age[:-2]:
        if len(shard.minutes) <= kept.minutes and held <= kept.rows:
            break
        if not minute.dirty:
            held -= minute.rows
            del shard.minutes[number]
    if len(shard.copies) > kept.copies:
        by_time = sorted(shard.copies.items(), key=lambda item: item[1].sealed_at_us)
        for key, mark in by_time[: len(shard.copies) - kept.copies]:
            if not mark.dirty:
                del shard.copies[key]


def is_outgrown(shard: Shard, kept: ShardBounds) -> bool:
    """Whether it has named more than is kept, and most of that is of no use any more.

    Then it is better opened anew, once all of it is written. What its minutes use would only be loaded again.
    """
    return shard.names > kept.names and shard.names > 2 * shard.rows


def fleet_key(scope: int, policy_version: int, code: int) -> int:
    """One integer for (scope id, policy version, code)."""
    return (scope << (VERSION_BITS + _CODE_BITS)) | (policy_version << _CODE_BITS) | code


def fleet_keys(versioned: Int64s, codes: Int64s) -> Int64s:
    """The same of many: `versioned` is ``scope id << VERSION_BITS | policy version``."""
    return (versioned << _CODE_BITS) | codes


def split_fleet(key: int) -> tuple[int, int, int]:
    """(scope id, policy version, code) of a fleet key."""
    versioned = key >> _CODE_BITS
    return versioned >> VERSION_BITS, versioned & ((1 << VERSION_BITS) - 1), key & ((1 << _CODE_BITS) - 1)
