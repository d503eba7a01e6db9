"""The body of a request: read piece by piece, never more of it than is allowed. Knows nothing of what is in it."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from starlette.requests import Request

from tallygate.engines.front.errors import Code, FrontError, refusal


async def pieces(request: Request, limit_bytes: int) -> AsyncGenerator[bytes, None]:
    """The body as it arrives.

    Raises:
        FrontError: 396 (HTTP 413), as soon as it is known that the body is larger.
    """
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length) > limit_bytes:
        raise too_large(limit_bytes)
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > limit_bytes:
            raise too_large(limit_bytes)
        if piece:
            yield piece


def too_large(limit_bytes: int, *, decompressed: bool = False) -> FrontError:
    """The refusal of a body beyond the limit."""
    state = "The request body, decompressed," if decompressed else "The request body"
    return refusal(
        Code.TOO_MANY_ROWS_OR_BYTES,
        f"{state} is larger than {limit_bytes:,} bytes, the most that this server takes (--max-body-mb); send it in "
        "parts.",
    )
