"""The fixed fields at the start of a block: read, and proved to be possible. Trusts nothing that it reads.

Reads no clock and talks to nobody.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import Final, NamedTuple

from stream.contract import layout
from stream.contract.block import Totals
from stream.contract.layout import CorruptBlock

_VERSIONS: Final = (layout.VERSION_PLAIN, layout.VERSION_WITH_CHARGES, layout.VERSION)


class Header(NamedTuple):
    """The fixed fields, in the order of `layout.HEADER_FIELDS`; what an older version does not have is None."""

    magic: bytes
    version: int
    copy_id_bytes: int
    block_bytes: int
    crc32: int
    epoch: int
    first_seq: int
    decisions: int
    refusals: int
    bases: int
    callers: int
    scopes: int
    limits: int
    plans: int
    names_bytes: int
    sealed_at_us: int
    first_at_us: int
    clock_offset_ns: int
    prev_hash: bytes
    owner_offset_us: int | None = None
    admitted_total: int | None = None
    refused_total: int | None = None
    cost_total: int | None = None


def hash_block(data: bytes) -> bytes:
    """The block's own hash, which the epoch's next block carries: BLAKE2b-128 of all its bytes."""
    return hashlib.blake2b(data, digest_size=layout.HASH_BYTES).digest()


def totals_of(data: bytes) -> Totals:
    """The copy's running totals at the end of a block of version 3 that it has just sealed."""
    return Totals(*layout.TOTALS.unpack_from(data, layout.TOTALS_AT))


def read_header(data: bytes) -> Header:
    """Read the header of a whole block, whose length and check value it must state.

    Raises:
        CorruptBlock: it is none, or says what cannot be; names the field and the value.
    """
    _check_length(data, layout.OLD_HEADER.size)
    magic, version = layout.BEGINNING.unpack_from(data)
    if magic != layout.MAGIC:
        raise CorruptBlock(f"magic is {magic!r}; allowed: {layout.MAGIC!r}")
    if version not in _VERSIONS:
        raise CorruptBlock(f"version is {version}; allowed: {', '.join(map(str, _VERSIONS))}")
    fields = layout.header_of(version)
    _check_length(data, fields.size)
    header = Header(*fields.unpack_from(data))
    if header.block_bytes != len(data) or len(data) > layout.MAX_BLOCK_BYTES:
        raise CorruptBlock(
            f"block_bytes is {header.block_bytes}, the block is {len(data)} bytes long;"
            f" allowed: equal, and at most {layout.MAX_BLOCK_BYTES}"
        )
    view = memoryview(data)
    crc = zlib.crc32(view[layout.CRC_END :], zlib.crc32(view[: layout.CRC_AT]))
    if header.crc32 != crc:
        raise CorruptBlock(f"crc32 is {header.crc32:#010x}; the bytes give {crc:#010x}")
    _check_counts(header)
    _check_clock_and_totals(header)
    return header


def _check_length(data: bytes, header_bytes: int) -> None:
    least = header_bytes + layout.DESCRIPTORS.size
    if len(data) < least:
        raise CorruptBlock(f"the block is {len(data)} bytes long; allowed: at least {least}")


def _check_clock_and_totals(header: Header) -> None:
    """A copy cannot count fewer decisions than this block holds, nor more than it has numbered."""
    admitted, refused = header.admitted_total, header.refused_total
    if header.owner_offset_us is None or admitted is None or refused is None:
        return
    if header.owner_offset_us != layout.NO_OWNER_CLOCK and abs(header.owner_offset_us) > layout.AT_US_MAX:
        raise CorruptBlock(
            f"owner_offset_us is {header.owner_offset_us}; allowed: {-layout.AT_US_MAX} to {layout.AT_US_MAX}"
        )
    if admitted < header.decisions - header.refusals or refused < header.refusals:
        raise CorruptBlock(
            f"admitted_total is {admitted} and refused_total {refused}; allowed: at least what the block holds,"
            f" {header.decisions - header.refusals} and {header.refusals}"
        )
    if admitted + refused > header.first_seq + header.decisions:
        raise CorruptBlock(
            f"admitted_total is {admitted} and refused_total {refused};"
            f" allowed: together up to {header.first_seq + header.decisions}, one past the last seq"
        )


def _check_counts(header: Header) -> None:
    limits = {
        "decisions": (header.decisions, 0, layout.MAX_DECISIONS),
        "refusals": (header.refusals, 0, header.decisions),
        "bases": (header.bases, 1 if header.decisions else 0, header.decisions),
        "copy_id_bytes": (header.copy_id_bytes, 1, layout.MAX_COPY_ID_BYTES),
        "first_seq": (header.first_seq, 0, layout.I64_MAX - header.decisions),
        "sealed_at_us": (header.sealed_at_us, 0, layout.AT_US_MAX),
        "first_at_us": (header.first_at_us, 0, layout.AT_US_MAX),
    }
    for name in ("callers", "scopes", "limits", "plans"):
        limits[name] = (getattr(header, name), 1 if header.bases else 0, header.bases)
    for name, (value, low, high) in limits.items():
        if not low <= value <= high:
            raise CorruptBlock(f"{name} is {value}; allowed: {low} to {high}")
