"""One HTTP answer: whole, or in pieces with errors after the first byte marked as ClickHouse marks them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from starlette.types import Send

from tallygate.engines.front.compression import BodyEncoder, worth_compressing
from tallygate.engines.front.errors import FrontError

_CONTENT_TYPES = {
    "json": "application/json; charset=UTF-8",
    "jsoncompact": "application/json; charset=UTF-8",
    "jsoneachrow": "application/x-ndjson; charset=UTF-8",
    "csv": "text/csv; charset=UTF-8; header=absent",
    "csvwithnames": "text/csv; charset=UTF-8; header=present",
    "tabseparated": "text/tab-separated-values; charset=UTF-8",
    "tsv": "text/tab-separated-values; charset=UTF-8",
}
_BINARY = "application/octet-stream"
_TEXT = "text/plain; charset=UTF-8"


class Reply:
    """The answer to one request. Begins once, ends once."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._begun = False
        self._ended = False
        self._encoder = BodyEncoder(None)
        self._tag = secrets.token_hex(8)

    async def whole(self, body: bytes, headers: Mapping[str, str], *, status: int = 200) -> None:
        """Answer with a finished body."""
        await self._start(status, {**headers, "Content-Length": str(len(body))})
        await self._body(body, more=False)

    async def begin(self, headers: Mapping[str, str], encoder: BodyEncoder) -> None:
        """Begin an answer whose pieces follow."""
        self._encoder = encoder
        await self._start(200, {**headers, "X-ClickHouse-Exception-Tag": self._tag})

    async def piece(self, body: bytes, *, last: bool) -> None:
        """Send one encoded piece."""
        await self._body(body, more=not last)

    async def fail(self, error: FrontError) -> None:
        """Say what went wrong.

        After the first byte the answer is marked, and left without its end: the server then closes the connection, so
        that no client takes the rows so far for all of them.
        """
        if not self._begun:
            headers = {"X-ClickHouse-Exception-Code": str(int(error.code)), "Content-Type": _TEXT}
            await self.whole(f"{error.text}\n".encode(errors="replace"), headers, status=error.status)
        elif not self._ended:
            text = error.text.encode(errors="replace")
            tag = self._tag.encode()
            marked = b"__exception__\r\n%b\r\n%b\n%d %b\r\n__exception__\r\n" % (tag, text, len(text) + 1, tag)
            await self._body(self._encoder.piece([marked], last=True), more=True)

    async def _start(self, status: int, headers: Mapping[str, str]) -> None:
        self._begun = True
        encoded = [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})

    async def _body(self, body: bytes, *, more: bool) -> None:
        self._ended = not more
        await self._send({"type": "http.response.body", "body": body, "more_body": more})


def encode_whole(pieces: list[bytes], encoding: str | None) -> tuple[bytes, str | None]:
    """A finished body, and the encoding that was worth it."""
    if encoding is None or not worth_compressing(sum(map(len, pieces))):
        return b"".join(pieces), None
    return BodyEncoder(encoding).piece(pieces, last=True), encoding


def content_type(format_name: str) -> str:
    """The media type of a result."""
    name = format_name.lower()
    return _CONTENT_TYPES.get(name, _TEXT if name.startswith(("tab", "tsv", "csv", "pretty", "json")) else _BINARY)
