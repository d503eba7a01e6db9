"""A block of decisions to bytes and back: the one door to the layout of ``docs/reference/block-format.md``.

`BlockEncoder` is for a copy that seals many blocks; `encode_block` for a single one. Compression is Kafka's.
"""

from __future__ import annotations

from enforcer.types import Verdict
from stream.contract.decode import decode_block, hash_block
from stream.contract.encode import BlockEncoder
from stream.contract.layout import MAX_DECISIONS, NO_HASH, CorruptBlock, UnencodableBlock

__all__ = [
    "MAX_DECISIONS",
    "NO_HASH",
    "BlockEncoder",
    "CorruptBlock",
    "UnencodableBlock",
    "decode_block",
    "encode_block",
    "hash_block",
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
    )
