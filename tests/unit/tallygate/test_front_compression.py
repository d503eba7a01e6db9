"""Bodies in the encodings that clients use."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from typing import Any

import cramjam
import pytest

from tallygate.engines.front.compression import ENCODINGS, BodyEncoder, choose_encoding, decode_body
from tallygate.engines.front.errors import FrontError
from tallygate.engines.front.reply import encode_whole

LIMIT = 1 << 20
_COMPRESS: dict[str, Callable[[bytes], Any]] = {
    "lz4": cramjam.lz4.compress,
    "zstd": cramjam.zstd.compress,
    "gzip": gzip.compress,
    "deflate": zlib.compress,
}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_pieces_of_a_response_are_one_body(encoding: str) -> None:
    """A client decodes the whole as one stream."""
    encoder = BodyEncoder(encoding)
    body = (
        encoder.piece([b"a" * 5_000, b"b"], last=False)
        + encoder.piece([], last=False)
        + encoder.piece([b"c"], last=True)
    )
    assert decode_body([body], encoding, LIMIT) == [b"a" * 5_000 + b"bc"]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_request_bodies_are_decoded_from_any_pieces(encoding: str) -> None:
    """The network cuts where it likes."""
    packed = bytes(_COMPRESS[encoding](b"x" * 100_000))
    assert decode_body([packed[:7], packed[7:]], encoding, LIMIT) == [b"x" * 100_000]


@pytest.mark.parametrize("encoding", ["lz4", "zstd", "gzip"])
def test_request_bodies_of_several_frames_are_whole(encoding: str) -> None:
    """Clients that compress block by block send one frame after the other; half the rows would be lost silently."""
    frames = b"".join(bytes(_COMPRESS[encoding](part)) for part in (b"one,", b"two,", b"three"))
    assert decode_body([frames], encoding, LIMIT) == [b"one,two,three"]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_broken_and_unknown_bodies_are_refused(encoding: str) -> None:
    """The engine must not see half a body."""
    packed = bytes(_COMPRESS[encoding](bytes(range(256)) * 400))
    with pytest.raises(FrontError, match=encoding):
        decode_body([packed[: len(packed) // 2]], encoding, LIMIT)
    with pytest.raises(FrontError, match="'snappy' is not supported"):
        decode_body([packed], "snappy", LIMIT)


@pytest.mark.parametrize("encoding", [*ENCODINGS, "br"])
def test_a_body_is_decoded_up_to_the_limit_and_not_beyond(encoding: str) -> None:
    """A few kilobytes can unfold into gigabytes; what is too large is said, and is not an invalid body."""
    compress = {**_COMPRESS, "br": cramjam.brotli.compress}[encoding]
    fits, bomb = bytes(compress(bytes(LIMIT))), bytes(compress(bytes(LIMIT + 1)))
    assert decode_body([fits], encoding, LIMIT) == [bytes(LIMIT)]
    with pytest.raises(FrontError, match=r"decompressed, is larger than 1,048,576 bytes.*--max-body-mb") as refused:
        decode_body([bomb], encoding, LIMIT)
    assert (refused.value.code, refused.value.status) == (396, 413)


def test_encoding_is_one_that_the_client_accepts() -> None:
    """A body that the client cannot decode is lost."""
    assert choose_encoding("zstd, gzip;q=0.5", wanted=True) == "zstd"
    assert choose_encoding("lz4,zstd,gzip", wanted=True) == "lz4"
    assert choose_encoding("br", wanted=True) is None
    assert choose_encoding("gzip", wanted=False) is None


def test_small_bodies_are_left_plain() -> None:
    """Most answers are a few rows."""
    assert encode_whole([b"1\n"], "lz4") == (b"1\n", None)
    body, encoding = encode_whole([b"1\n" * 5_000], "lz4")
    assert encoding == "lz4"
    assert decode_body([body], "lz4", LIMIT) == [b"1\n" * 5_000]
