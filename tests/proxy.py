"""A TCP proxy that misbehaves once, at a chosen byte of what the server says: what does its client make of it?"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum


class Fault(Enum):
    """What becomes of the rest of the server's answer."""

    RESET = "reset"
    """The connection is reset (RST)."""
    CLOSE = "close"
    """The connection is closed (FIN)."""
    STALL = "stall"
    """Nothing more arrives on this connection, and nothing ends it."""
    GARBAGE = "garbage"
    """Bytes of no protocol stand in its place."""


class Proxy:
    """Forwards connections to one port of this machine; the faults hit one connection, new ones are fine."""

    def __init__(self, upstream_port: int) -> None:
        self._upstream_port = upstream_port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._lock = threading.Lock()
        self._fault: Fault | None = None
        self._left = 0
        self._clients: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, fault: Fault, *, after: int) -> None:
        """Let so many more bytes of the server's through, then do this, once."""
        with self._lock:
            self._left, self._fault = after, fault

    @property
    def is_armed(self) -> bool:
        """Whether the fault is still to come."""
        return self._fault is not None

    def say(self, words: bytes) -> None:
        """Put bytes on every open connection to a client, as if the server had said them unasked."""
        for client in self._clients:
            client.sendall(words)

    def close(self) -> None:
        """End everything."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for client in self._clients:
            client.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._upstream_port))
            self._clients.append(client)
            threading.Thread(target=_pump, args=(client, server), daemon=True).start()
            threading.Thread(target=self._answer, args=(server, client), daemon=True).start()

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        try:
            while said := server.recv(65_536):
                with self._lock:
                    fault = self._fault if len(said) > self._left else None
                    through = said[: self._left] if fault else said
                    self._left -= len(through) if self._fault else 0
                    self._fault = None if fault else self._fault
                client.sendall(through)
                if fault is not None:
                    self._break(fault, client)
                    break
        except OSError:
            return
        finally:
            server.close()

    def _break(self, fault: Fault, client: socket.socket) -> None:
        if fault is Fault.STALL:
            return
        self._clients.remove(client)
        if fault is Fault.GARBAGE:
            client.sendall(b"\x00\xffHTTP/1.1 400 Bad Request\r\n\r\n")
        if fault is Fault.RESET:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            client.shutdown(socket.SHUT_RDWR)
        client.close()


def _pump(client: socket.socket, server: socket.socket) -> None:
    try:
        while asked := client.recv(65_536):
            server.sendall(asked)
    except OSError:
        return
    finally:
        server.close()


@contextmanager
def proxied(upstream_port: int) -> Iterator[Proxy]:
    """A proxy before a port of this machine, for as long as the block lasts."""
    made = Proxy(upstream_port)
    try:
        yield made
    finally:
        made.close()
