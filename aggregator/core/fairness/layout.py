"""The columns that a replay of buckets works on: what goes in, what is carried from minute to minute, what comes out.

Names and places only; `_replay.c` has the same places under the same names. Computes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Doubles: TypeAlias = npt.NDArray[np.float64]
Int64s: TypeAlias = npt.NDArray[np.int64]
UInt32s: TypeAlias = npt.NDArray[np.uint32]
UInt64s: TypeAlias = npt.NDArray[np.uint64]
UInt8s: TypeAlias = npt.NDArray[np.uint8]
Int32s: TypeAlias = npt.NDArray[np.int32]


class Levels(IntEnum):
    """Columns of doubles, all in millionths of a token but RATE; those below EXCESS are carried on."""

    EXACT = 0
    """The exact bucket: every request offered, debited where it has the tokens."""
    REAL = 1
    """A bucket debited by what was really admitted; below zero by what was admitted beyond the plan."""
    POLICED = 2
    """An exact bucket that only admitted requests are offered to: those that it refuses are over-admitted."""
    RATE = 3
    """Tokens per second, as last in force; millionths of a token per microsecond are the same number."""
    BURST = 4
    MOST_BURST = 5
    """Largest burst in force since REAL was last full."""
    REMAINDERS = 6
    """k × (largest cost − 1), the largest since REAL was last full."""
    ALONE = 7
    """Degraded copies × burst, the largest since REAL was last full without any."""
    DRIFT = 8
    """Degraded copies × rate × the time that they decided alone, summed since REAL was last full without any."""
    EXCESS = 9
    """How far REAL was below zero at its lowest in this minute."""
    EPSILON = 10
    """The declared bound on EXCESS: MOST_BURST + REMAINDERS + ALONE + DRIFT."""


class Counts(IntEnum):
    """Columns of integers; those below GROUP are the marks that are carried on, -1 for never."""

    AT = 0
    """Up to when the buckets are refilled, unix microseconds; -1 for a bucket not seen before."""
    RETRY_UNTIL = 1
    """Until when an earlier refusal asked to wait, unix microseconds."""
    CHANGED = 2
    """When the terms changed last, unix microseconds."""
    FULL_AT = 3
    """From when on nothing of the state matters any more, unix microseconds; never earlier than it was said before."""
    GROUP = 4
    MINUTE = 5
    """Unix time in minutes."""
    OFFERED = 6
    ADMITTED = 7
    REFUSED = 8
    WRONGFUL = 9
    DISPLACED = 10
    """Of the wrongful: all that the plan allows had been admitted, in other requests."""
    OVER_ADMITTED = 11
    EARLY_RETURNS = 12
    BUSIEST = 13
    """Most requests offered in one second of the clock."""
    BUSIEST_AT_S = 14
    K = 15
    """Copies that decided."""
    COST_ADMITTED = 16
    LARGEST_COST = 17


class Flag(IntFlag):
    """What is said of one decision."""

    EXACT = 1
    """The exact bucket admits it."""
    WRONGFUL = 2
    """Refused, while the exact bucket admits it."""
    DISPLACED = 4
    """Wrongful, and all that the plan allows had been admitted by then, in other requests."""
    OVER_ADMITTED = 8
    EARLY = 16
    """Came before the Retry-After of an earlier refusal had passed."""
    POLICY = 32
    """Wrongful, and the terms had changed within the time that it takes to fill the bucket."""


CARRIED_LEVELS: Final = int(Levels.EXCESS)
CARRIED_MARKS: Final = int(Counts.GROUP)
ROW_LEVELS: Final = len(Levels)
ROW_COUNTS: Final = len(Counts)
MINUTE_US: Final = 60_000_000
#: The year 2100: what no time in the record passes.
END_OF_TIME_US: Final = 4_102_444_800_000_000


@dataclass(frozen=True, slots=True)
class Carried:
    """The state of buckets, one a row: `levels` is [g, 9], `marks` is [g, 4]."""

    levels: Doubles
    marks: Int64s

    @classmethod
    def unseen(cls, buckets: int) -> Carried:
        """Buckets of which nothing is known: full at their first decision."""
        return cls(np.zeros((buckets, CARRIED_LEVELS)), np.full((buckets, CARRIED_MARKS), -1, np.int64))


@dataclass(frozen=True, slots=True)
class Decided:
    """Decisions of buckets, those of one bucket together, in the order (copy, epoch, seq) or already by time.

    Attributes:
        starts: [g + 1]; bucket g has the decisions ``starts[g] … starts[g + 1] - 1``.
        at_us: [n], unix microseconds by the owner's clock.
        cost: [n], tokens.
        code: [n], `outcome_code(source, reason)`.
        retry_after_ms: [n]; 0 if admitted, -1 for never.
        copy: [n], a number from 0 for each copy.
        terms: [n], which of the `rates` and `bursts` was in force.
        rates: [t], tokens per second.
        bursts: [t], tokens.
        copies: how many numbers `copy` may hold.
    """

    starts: Int64s
    at_us: Int64s
    cost: UInt32s
    code: UInt8s
    retry_after_ms: Int32s
    copy: UInt32s
    terms: UInt32s
    rates: Doubles
    bursts: Doubles
    copies: int


class Arrays(NamedTuple):
    """What the function `replay` of both modules is given, in this order; the last seven are written to."""

    starts: Int64s
    order: UInt32s
    at_us: Int64s
    cost: UInt32s
    code: UInt8s
    retry_after_ms: Int32s
    copy: UInt32s
    terms: UInt32s
    rates: Doubles
    bursts: Doubles
    carried_levels: Doubles
    carried_marks: Int64s
    seen: Int64s
    row_levels: Doubles
    row_counts: Int64s
    flags: UInt8s
    wrong_at: Int64s
    wrong_row: Int64s
    wrong_real: Doubles


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay says: one row a bucket and minute with decisions, buckets in order, minutes ascending.

    Attributes:
        levels: [r, 11], columns of `Levels`; as they are after the minute's last decision.
        counts: [r, 18], columns of `Counts`.
        flags: [n], `Flag`s of each decision, in the order that they were given in.
        wrong_at: [w], which decisions were refused wrongfully and not displaced.
        wrong_row: [w], the row in which each is counted.
        wrong_real: [w], millionths of tokens in the real bucket at each.
    """

    levels: Doubles
    counts: Int64s
    flags: UInt8s
    wrong_at: Int64s
    wrong_row: Int64s
    wrong_real: Doubles

    def carried(self, rows: Int64s) -> Carried:
        """The state at the end of some rows."""
        return Carried(self.levels[rows, :CARRIED_LEVELS], self.counts[rows, :CARRIED_MARKS])
