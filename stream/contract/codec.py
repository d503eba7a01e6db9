"""A block of decisions to bytes and back: the one door to the layout of ``docs/reference/block-format.md``.

`BlockEncoder` is for a copy that seals many blocks, `encode_block` for a single one; `encode_columns` writes a decoded
block again. Compression is Kafka's.
"""

from __future__ import annotations

from enforcer.types import Verdict
from stream.contract.block import Totals
from stream.contract.decode import decode_block
from stream.contract.encode import NOTHING_YET, BlockEncoder, totals_of_verdicts
from stream.contract.header import hash_block, totals_of
from stream.contract.layout import MAX_DECISIONS, NO_HASH, VERSION, CorruptBlock, UnencodableBlock
from stream.contract.rewrite import encode_columns

__all__ = [
    "MAX_DECISIONS",
    "NOTHING_YET",
    "NO_HASH",
    "VERSION",
    "BlockEncoder",
    "CorruptBlock",
    "UnencodableBlock",
    "decode_block",
    "encode_block",
    "encode_columns",
    "hash_block",
    "totals_of",
    "totals_of_verdicts",
]


def encode_block(
    verdicts: list[Verdict],
    *,
    copy_id: str,
    epoch: int,
    first_seq: int,
    sealed_at_us: int,
    clock_offset_ns: int,
    prev_hash: bytes = NO_HASH,
    owner_offset_us: int | None = None,
    before: Totals = NOTHING_YET,
) -> bytes:
    """Write one block; see `BlockEncoder.encode`, whose arguments and errors it shares."""
    return BlockEncoder().encode(
        verdicts,
        copy_id=copy_id,
        epoch=epoch,
        first_seq=first_seq,
        sealed_at_us=sealed_at_us,
        clock_offset_ns=clock_offset_ns,
        prev_hash=prev_hash,
        owner_offset_us=owner_offset_us,
        before=before,
    )
