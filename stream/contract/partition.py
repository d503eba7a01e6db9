"""Which partition carries what is keyed by a caller: the same for every process, whatever client it uses."""

from __future__ import annotations

import zlib


def caller_partition(caller: str, partitions: int) -> int:
    """The partition, 0 to ``partitions - 1``: CRC-32 of the caller's UTF-8 bytes, modulo the count."""
    return zlib.crc32(caller.encode("utf-8", "surrogatepass")) % partitions


def grants_partition(caller: str, partitions: int) -> int:
    """Which partition of the grants topic carries a caller's facts."""
    return caller_partition(caller, partitions)
