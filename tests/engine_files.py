"""Looks into the files of the engine: whether a text is really gone from the disk, whatever queries say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import cramjam

from aggregator.store_clickhouse import ClickHouseStore


def files_with(store: ClickHouseStore, name: bytes) -> list[str]:
    """Files of the parts that are read, dead letters left out, in which a text stands, plain or compressed."""
    found = []
    for table, folder in store.rows(
        "SELECT table, path FROM system.parts WHERE database = currentDatabase() AND active AND table != 'dead_letters'"
    ):
        assert Path(folder).is_dir(), "the engine's files are on this machine"
        for file in Path(folder).iterdir():
            data = file.read_bytes()
            if name in data or any(name in piece for piece in _decompressed(data)):
                found.append(f"{table}/{file.name}")
    return found


def _decompressed(data: bytes) -> Iterator[bytes]:
    """The blocks of a compressed file of the engine; nothing for files of other kinds."""
    place = 0
    while place + 25 <= len(data):
        method, packed = data[place + 16], int.from_bytes(data[place + 17 : place + 21], "little")
        size = int.from_bytes(data[place + 21 : place + 25], "little")
        body = data[place + 25 : place + 16 + packed]
        if method not in {0x02, 0x82, 0x90, 0x91} or packed < 9 or len(body) != packed - 9 or size > 1 << 28:
            return
        yield from _opened(method, body, size)
        place += 16 + packed


def _opened(method: int, body: bytes, size: int) -> Iterator[bytes]:
    try:
        if method == 0x82:
            yield bytes(cramjam.lz4.decompress_block(size.to_bytes(4, "little") + body))
        elif method == 0x90:
            yield bytes(cramjam.zstd.decompress(body))
        elif method == 0x02:
            yield body
        # Several codecs, one upon the other: numbers only.
    except cramjam.DecompressionError:
        return
