"""Bodies as clients compress them: whole requests in, responses out in pieces.

Never touches ClickHouse's own block format.
"""

from __future__ import annotations

import mmap
from typing import Protocol

import cramjam

from tallygate.engines.front.body import too_large
from tallygate.engines.front.errors import Code, refusal

#: In order of preference: lz4 costs the least where both ends are one machine.
ENCODINGS = ("lz4", "zstd", "gzip", "deflate")

#: What the decompressors say when their output is full.
_NO_ROOM = "failed to write whole buffer"

#: Below this, compressing costs more than it saves.
_SMALL_BYTES = 1_024


class Compressor(Protocol):
    """What cramjam's compressors have in common."""

    def compress(self, data: bytes) -> int:
        """Take more input."""
        ...

    def flush(self) -> cramjam.Buffer:
        """What is compressed so far."""
        ...

    def finish(self) -> cramjam.Buffer:
        """The rest, and the end mark."""
        ...


class BodyEncoder:
    """Encodes one response body piece by piece; without an encoding it passes them on."""

    def __init__(self, encoding: str | None) -> None:
        self.encoding = encoding
        self._compressor: Compressor | None = _COMPRESSORS[encoding]() if encoding else None

    def piece(self, chunks: list[bytes], *, last: bool) -> bytes:
        """The next bytes to send."""
        if self._compressor is None:
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)
        for chunk in chunks:
            self._compressor.compress(chunk)
        return bytes(self._compressor.finish() if last else self._compressor.flush())


_COMPRESSORS = {
    "lz4": cramjam.lz4.Compressor,
    "zstd": cramjam.zstd.Compressor,
    "gzip": cramjam.gzip.Compressor,
    # HTTP's deflate is the zlib format, not the bare stream.
    "deflate": cramjam.zlib.Compressor,
}
_DECOMPRESSORS = {
    "lz4": cramjam.lz4.decompress_into,
    "zstd": cramjam.zstd.decompress_into,
    "gzip": cramjam.gzip.decompress_into,
    "deflate": cramjam.zlib.decompress_into,
    "br": cramjam.brotli.decompress_into,
}


def choose_encoding(accept: str, *, wanted: bool) -> str | None:
    """The encoding to answer in, of those that the client accepts; None for a plain body."""
    if not wanted:
        return None
    offered = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    return next((encoding for encoding in ENCODINGS if encoding in offered), None)


def worth_compressing(size_bytes: int) -> bool:
    """Whether a whole body of this size is worth it."""
    return size_bytes >= _SMALL_BYTES


def decode_body(chunks: list[bytes], encoding: str, limit_bytes: int) -> list[bytes]:
    """The request body without its Content-Encoding; never more of it in memory than the limit.

    Raises:
        FrontError: an encoding that we do not know, bytes that are not of it, or a body larger than the limit (396).
    """
    if encoding in {"", "identity"}:
        return chunks
    decompress = _DECOMPRESSORS.get(encoding)
    if decompress is None:
        allowed = ", ".join(_DECOMPRESSORS)
        raise refusal(Code.NOT_IMPLEMENTED, f"Content-Encoding {encoding!r} is not supported, only {allowed}.")
    # Addresses without memory behind them: only what is written takes any.
    with mmap.mmap(-1, limit_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as room:
        try:
            return [room[: decompress(b"".join(chunks), room)]]
        except cramjam.DecompressionError as error:
            if str(error) == _NO_ROOM:
                raise too_large(limit_bytes, decompressed=True) from error
            raise refusal(Code.BAD_ARGUMENTS, f"The request body is not valid {encoding}: {error}.") from error
