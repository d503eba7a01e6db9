"""Which partition of the grants topic carries a caller's facts: the same for every copy, whatever client it uses."""

from __future__ import annotations

import zlib


def grants_partition(caller: str, partitions: int) -> int:
    """The partition, 0 to ``partitions - 1``: CRC-32 of the caller's UTF-8 bytes, modulo the count."""
    return zlib.crc32(caller.encode("utf-8", "surrogatepass")) % partitions
