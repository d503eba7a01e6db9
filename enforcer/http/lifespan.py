"""A limiter that lives as long as the server: built at its startup, closed at its shutdown.

Works with applications that have a lifespan of their own and with those that know of none. Never serves a request.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from enforcer.errors import EnforcerError
from enforcer.forking import tell_of_forks
from enforcer.limiting.limiter import Limiter

log = logging.getLogger("enforcer")

_Message: TypeAlias = MutableMapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[_Message]]
_Send: TypeAlias = Callable[[_Message], Awaitable[None]]
_App: TypeAlias = Callable[[_Message, _Receive, _Send], Awaitable[None]]
_LAST_MESSAGES = ("lifespan.shutdown.complete", "lifespan.shutdown.failed", "lifespan.startup.failed")


class Lifespan:
    """Builds the limiter once, hands it to `use`, and closes it once."""

    def __init__(self, build: Callable[[], Limiter], use: Callable[[Limiter], None]) -> None:
        self._build = build
        self._use = use
        self._limiter: Limiter | None = None
        self._closed = False
        self._lock = threading.Lock()
        tell_of_forks(self)

    def after_fork(self) -> None:
        """See `Forkable`: the child's limiter is still to be built."""
        self._lock = threading.Lock()
        self._limiter = None
        self._closed = False

    def start(self) -> None:
        """Build the limiter, unless that is done. Whatever `build` raises comes through."""
        with self._lock:
            if self._limiter is None:
                self._limiter = self._build()
                self._use(self._limiter)

    def start_late(self) -> None:
        """Build the limiter at the first request of a server that has no lifespan, and say what that costs."""
        self.start()
        if self._limiter is not None:
            # Reached by a server that ends of itself; one that a signal ends gives nobody a chance.
            atexit.register(self._limiter.close)
        log.warning(
            "this server runs without the ASGI lifespan: when a signal ends it, the decisions of its last second are "
            "not recorded and its grants are not settled; turn the lifespan on",
            extra={"action": "no_lifespan"},
        )

    async def serve(self, app: _App, scope: _Message, receive: _Receive, send: _Send) -> None:
        """Take part in the server's lifespan, and stand in for an application that does not."""
        startup = await receive()
        try:
            self.start()
        except Exception as error:
            # A wrong setting or policy is the operator's to mend, and the server logs the message that it is sent:
            # only what nobody foresaw needs a traceback.
            if not isinstance(error, EnforcerError):
                log.exception("the limiter could not be built", extra={"action": "startup_failed"})
            await send({"type": "lifespan.startup.failed", "message": f"the limiter could not be built: {error}"})
            return
        unread = [startup]
        sent: set[str] = set()

        async def receive_again() -> _Message:
            return unread.pop() if unread else await receive()

        async def close_and_send(message: _Message) -> None:
            if not message["type"].startswith("lifespan."):
                # The smallest applications answer everything as if it were a request.
                raise LookupError(f"{message['type']} is no answer to a lifespan")
            sent.add(message["type"])
            if message["type"] in _LAST_MESSAGES:
                await self._close()
            await send(message)

        try:
            await app(scope, receive_again, close_and_send)
        except Exception:
            if sent:
                await self._close()
                raise
            # An application that knows no lifespan may do anything with one.
            log.debug("the application has no lifespan", exc_info=True)
        if not sent:
            await self._stand_in(receive, close_and_send)
        await self._close()

    async def _stand_in(self, receive: _Receive, send: _Send) -> None:
        await send({"type": "lifespan.startup.complete"})
        while (await receive())["type"] != "lifespan.shutdown":
            pass
        await send({"type": "lifespan.shutdown.complete"})

    async def _close(self) -> None:
        # Nothing may be awaited once the last message is out: servers then end their loop, which would cancel this
        # task and have them log that the application failed.
        if self._limiter is not None and not self._closed:
            self._closed = True
            # It settles and ships for up to some seconds: not in the loop's own thread.
            await asyncio.to_thread(self._limiter.close)
