"""The smallest ASGI application behind the limiter, as a server with several workers runs it. It records to a file."""

from __future__ import annotations

import os

from enforcer import RateLimitMiddleware, build_limiter
from enforcer.http.asgi import Receive, Scope, Send
from tests.servers.file_sink import FileSink


async def hello(_scope: Scope, _receive: Receive, send: Send) -> None:
    """Who has answered."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": str(os.getpid()).encode()})


app = RateLimitMiddleware(hello, lambda: build_limiter(sink=FileSink))
