"""The binary layout of a block of decisions, versions 1 to 3: its fields, their widths and their limits.

`writing` writes it, `decode` reads it, ``docs/reference/block-format.md`` explains it. Holds no behaviour.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, Literal

from enforcer.types import MAX_RECORDED_MS

MAGIC: Final = b"TGDB"
#: What is written: the bytes follow from what the block says, so that whoever has its decisions can write it again.
VERSION: Final = 3
#: An older block whose decisions were each charged to one token bucket.
VERSION_PLAIN: Final = 1
#: An older block that names further grants of a decision, or a calendar quota.
VERSION_WITH_CHARGES: Final = 2
#: Most decisions that one block may hold.
MAX_DECISIONS: Final = 65_536
#: Longest block; far above what a copy ships (see `stream.config`), far below what could hurt a reader.
MAX_BLOCK_BYTES: Final = 16 * 1024 * 1024
HASH_BYTES: Final = 16
#: `prev_hash` of an epoch's first block.
NO_HASH: Final = bytes(HASH_BYTES)
MAX_COPY_ID_BYTES: Final = 63
#: A copy id, as `enforcer.identity` makes it.
COPY_ID_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z"

U32_MAX: Final = 2**32 - 1
I64_MIN: Final = -(2**63)
I64_MAX: Final = 2**63 - 1
U64_MAX: Final = 2**64 - 1
#: Wall times reach from 1970 to 2255, in microseconds.
AT_US_MAX: Final = 2**53 - 1
#: `owner_offset_us` while no owner has said what time it is.
NO_OWNER_CLOCK: Final = I64_MIN
#: Two decisions of one block lie at most this far apart, in microseconds (about 50 days).
GAP_US_MAX: Final = 2**42


class CorruptBlock(ValueError):
    """Bytes from the log are not what the contract says; the message names the field, the value and the rule."""


class UnencodableBlock(ValueError):
    """A verdict holds a value that the log has no room for; the message names the field and the value."""


@dataclass(frozen=True, slots=True)
class Field:
    """One fixed field of the header: its name, its `struct` code and what it holds."""

    name: str
    code: str
    meaning: str


#: What one column has an entry for: a decision, all but the first decision, a refusal, a basis, a plan.
Rows = Literal["decisions", "gaps", "refusals", "bases", "plans"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of integers: which rows it has, and the smallest and largest value that it may hold."""

    name: str
    rows: Rows
    low: int
    high: int
    meaning: str


@dataclass(frozen=True, slots=True)
class NameList:
    """One array of the names section."""

    name: str
    items: str
    meaning: str


NAME_LISTS: Final[tuple[NameList, ...]] = (
    NameList("callers", "text", "each once"),
    NameList("scopes", "text", "each once"),
    NameList("limits", "text", "each once"),
    NameList("plans", "text", "name of each plan"),
    NameList("charges", "`[basis, subject, limit, grant_id]`", "a further grant that paid for a basis's admitted ones"),
    NameList("calendars", "text", "of each plan: the calendar of a quota, empty for a token bucket"),
)
HEADER_FIELDS: Final[tuple[Field, ...]] = (
    Field("magic", "4s", "`TGDB`"),
    Field("version", "H", "3; older blocks have 1 or 2"),
    Field("copy_id_bytes", "H", "length of the copy id, 1 to 63"),
    Field("block_bytes", "I", "length of the whole block"),
    Field("crc32", "I", "CRC-32 (zlib) of the whole block, without these four bytes"),
    Field("epoch", "Q", "the copy's epoch"),
    Field("first_seq", "Q", "seq of the first decision; of the next one to come if the block is empty"),
    Field("decisions", "I", "how many decisions, 0 to 65,536"),
    Field("refusals", "I", "how many of them are refused (reason other than 0)"),
    Field("bases", "I", "entries of the dictionary of bases"),
    Field("callers", "I", "strings in the list of callers"),
    Field("scopes", "I", "strings in the list of scopes"),
    Field("limits", "I", "strings in the list of limits"),
    Field("plans", "I", "entries of the list of plans"),
    Field("names_bytes", "I", "length of the names section"),
    Field("sealed_at_us", "q", "the copy's wall time when the block was sealed, unix microseconds"),
    Field("first_at_us", "q", "wall time of the first decision, unix microseconds; 0 if the block is empty"),
    Field("clock_offset_ns", "q", "wall time minus the copy's monotonic clock when the block was sealed"),
    Field("prev_hash", "16s", "BLAKE2b-128 of the epoch's block before this one; zeros for the first"),
    Field("owner_offset_us", "q", "the owner's clock minus the copy's wall clock, µs; the least i64 while unknown"),
    Field("admitted_total", "Q", "decisions of the epoch up to the block's end that were admitted, lost ones included"),
    Field("refused_total", "Q", "the same of the refused"),
    Field("cost_total", "Q", "tokens of those admitted"),
)
HEADER: Final = struct.Struct("<" + "".join(field.code for field in HEADER_FIELDS))
#: Versions 1 and 2 end with `prev_hash`.
OLD_HEADER: Final = struct.Struct("<" + "".join(field.code for field in HEADER_FIELDS[:-4]))
#: The copy's running totals: where they stand in version 3, and how.
TOTALS_AT: Final = OLD_HEADER.size + 8
TOTALS: Final = struct.Struct("<QQQ")
#: How every version begins: magic, version.
BEGINNING: Final = struct.Struct("<4sH")
#: Where the check value stands; it covers all bytes before and after itself.
CRC_AT: Final = struct.calcsize("<4sHHI")
CRC_END: Final = CRC_AT + 4

COLUMNS: Final[tuple[Column, ...]] = (
    Column("basis", "decisions", 0, U32_MAX, "index into the dictionary of bases"),
    Column("gap_us", "gaps", -GAP_US_MAX, GAP_US_MAX, "time since the decision before it"),
    Column("code", "decisions", 0, 255, "source in the high four bits, reason in the low four"),
    Column("cost", "decisions", 0, U32_MAX, "tokens asked for"),
    Column("remaining", "decisions", -(2**63), I64_MAX, "tokens that the copy still held"),
    Column("retry_after_ms", "refusals", -1, MAX_RECORDED_MS, "wait, or longer; -1 for never; an admission has 0"),
    Column("caller", "bases", 0, U32_MAX, "index into the callers"),
    Column("scope", "bases", 0, U32_MAX, "index into the scopes"),
    Column("limit", "bases", 0, U32_MAX, "index into the limits"),
    Column("plan", "bases", 0, U32_MAX, "index into the plans"),
    Column("policy_version", "bases", 0, U32_MAX, "version of the policy that was in force"),
    Column("grant_id", "bases", 0, I64_MAX, "the grant that was spent from; 0 for none"),
    Column("k", "bases", 0, U32_MAX, "copies that the owner had counted for the caller"),
    Column("burst", "plans", 0, I64_MAX, "the plan's burst in tokens"),
)
#: One (width, base) pair per column, in their order, after the fixed fields and before the copy id.
DESCRIPTORS: Final = struct.Struct("<" + "Bq" * len(COLUMNS))


def header_of(version: int) -> struct.Struct:
    """The fixed fields of a block of that version."""
    return HEADER if version == VERSION else OLD_HEADER
