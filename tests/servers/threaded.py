"""An ASGI application behind a real HTTP server in a thread of the test's own process, so that the test sees inside."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from enforcer.http.asgi import App
from tests.processes import wait_until


@contextmanager
def serving(app: App) -> Iterator[str]:
    """Its address; lifespan events are sent, and the server has ended when this returns."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            wait_until(lambda: server.started or not thread.is_alive(), 10, what="the gateway's start")
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(20)
