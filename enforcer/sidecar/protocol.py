"""The server's protocol with the bounds that uvicorn leaves out: a client may not take for ever, nor send any header.

Changes nothing in how requests are read and answered.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: What a request's line and headers may take together.
MAX_HEAD_BYTES = 32_768
_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class BoundedProtocol(HttpToolsProtocol):
    """Closes a connection whose request takes longer to arrive than an idle one is kept, or whose head is too long."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head = False
        self._head_bytes = 0
        self._arriving_since: float | None = None
        self._watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn narrows it
        """Take a connection, and give it so long to send a request."""
        super().connection_made(transport)
        self._arriving_since = self.loop.time()
        self._look_again()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        if self._watch is not None:
            self._watch.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; a head that is still not at its end beyond the bound ends the connection."""
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.transport.write(_TOO_LONG)
                self.transport.close()

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._in_head, self._head_bytes, self._arriving_since = True, 0, self.loop.time()

    def on_headers_complete(self) -> None:
        """Its head is whole."""
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """It has arrived."""
        self._arriving_since = None
        super().on_message_complete()

    def _look_again(self) -> None:
        # One timer a connection, not one a request: that would cost as much as a decision.
        since, longest_s = self._arriving_since, self.timeout_keep_alive
        if since is not None and self.loop.time() - since >= longest_s:
            self.transport.abort()
            return
        self._watch = self.loop.call_later(longest_s / 4, self._look_again)
