"""The server's protocol with the bounds that uvicorn leaves out: how many connections, and what one client may take.

Changes nothing in how requests are read and answered.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: What a request's line and headers may take together.
MAX_HEAD_BYTES = 32_768
#: Requests that a client may send before earlier ones are answered. uvicorn takes any number, at kilobytes each.
MAX_AHEAD = 64
#: How much of a large delivery is looked at before its head is measured again.
_PIECE_BYTES = 4_096
#: How long one that is turned away has to read why.
_PARTING_S = 0.5
_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class Door:
    """What all connections of one process share.

    Attributes:
        most: that may be open at a time.
        arrive_s: longest time that a request may take to arrive, or an answer to be taken.
        open: how many are.
        refused: how many were turned away, in all.
        parting: how many of these have not gone yet.
    """

    def __init__(self, *, most: int, arrive_s: float) -> None:
        self.most = most
        self.arrive_s = arrive_s
        self.open = self.refused = self.parting = 0


class BoundedProtocol(HttpToolsProtocol):
    """Ends a connection that is one too many, whose request or reader is too slow, or whose head is too long."""

    def __init__(self, door: Door, **given: Any) -> None:
        super().__init__(**given)
        self._door = door
        self._is_refused = self._in_head = False
        self._head_bytes = 0
        self._arriving_since: float | None = None
        self._unread_since: float | None = None
        self._watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn narrows it
        """Take a connection, and give it so long to send a request."""
        door = self._door
        if door.open >= door.most:
            self._turn_away(transport)
            return
        door.open += 1
        super().connection_made(transport)
        self._arriving_since = self.loop.time()
        self._look_again()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        if self._watch is not None:
            self._watch.cancel()
        if self._is_refused:
            self._door.parting -= 1
        else:
            self._door.open -= 1
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; a head that is still not at its end beyond the bound ends the connection."""
        if self._is_refused:
            return
        if len(data) <= MAX_HEAD_BYTES:
            self._read(data)
        else:
            for start in range(0, len(data), _PIECE_BYTES):
                self._read(data[start : start + _PIECE_BYTES])
                if self.transport.is_closing():
                    return
        # uvicorn's idle timer is off now; what began no request must not keep the connection without one.
        if self._arriving_since is None and self.cycle.response_complete:
            self._arriving_since = self.loop.time()

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._in_head, self._head_bytes, self._arriving_since = True, 0, self.loop.time()

    def on_headers_complete(self) -> None:
        """Its head is whole."""
        self._in_head = False
        super().on_headers_complete()
        if len(self.pipeline) > MAX_AHEAD:
            self.transport.abort()

    def on_message_complete(self) -> None:
        """It has arrived."""
        self._arriving_since = None
        super().on_message_complete()

    def pause_writing(self) -> None:
        """The client does not read what it asked for."""
        self._unread_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """It reads again."""
        self._unread_since = None
        super().resume_writing()

    def _read(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.transport.write(_TOO_LONG)
                self.transport.close()

    def _turn_away(self, transport: asyncio.Transport) -> None:
        door = self._door
        self._is_refused = True
        self.transport = transport
        door.refused += 1
        door.parting += 1
        if door.parting > door.most:
            transport.abort()
            return
        transport.write(_FULL)
        # Closed at once, it would reset a client that is still sending, which then does not read the answer.
        transport.write_eof()
        self._watch = self.loop.call_later(_PARTING_S, transport.abort)

    def _look_again(self) -> None:
        # One timer a connection, not one a request: that would cost as much as a decision.
        now, longest_s = self.loop.time(), self._door.arrive_s
        for since in (self._arriving_since, self._unread_since):
            if since is not None and now - since >= longest_s:
                self.transport.abort()
                return
        self._watch = self.loop.call_later(longest_s / 4, self._look_again)
