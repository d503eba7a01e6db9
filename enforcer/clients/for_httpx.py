"""Transports for httpx that wait for their tokens: sync and async, around any other transport.

Never sends a body twice that it could read only once, and never holds a connection while it waits.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from enforcer.clients.core import is_worth_reading
from enforcer.clients.retries import Attempts, Retries
from enforcer.errors import InvalidField

try:
    import anyio
    import httpx
except ImportError as fault:
    raise ImportError("enforcer.clients.for_httpx needs httpx: pip install 'tallygate[httpx]'") from fault

#: `extensions={MARK: True}` on a request: it may be sent again whatever its method; False: never.
MARK = "tallygate_retry"
_BROKEN = (httpx.NetworkError, httpx.ConnectTimeout, httpx.RemoteProtocolError)


class RetryTransport(httpx.BaseTransport):
    """For `httpx.Client(transport=…)`."""

    def __init__(
        self,
        wrapped: httpx.BaseTransport | None = None,
        retries: Retries | None = None,
        *,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """Wrap a transport, which is closed with this one.

        Args:
            wrapped: what sends; None: `httpx.HTTPTransport()`.
            retries: shared with the other transports to the same server; None: its own.
            sleep: waits for so many seconds.
        """
        self._wrapped = wrapped or httpx.HTTPTransport()
        self.retries = retries or Retries()
        self._sleep = sleep

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send until it is answered, or no longer worth it.

        Raises:
            InvalidField: the mark is no bool.
            httpx.TransportError: as the wrapped transport does.
        """
        attempts = _begin(self.retries, request)
        while True:
            try:
                response = self._wrapped.handle_request(request)
            except _BROKEN:
                wait = attempts.after_error()
                if wait is None:
                    raise
            else:
                wait = attempts.after_answer(response.status_code, response.headers)
                if wait is None:
                    return response
                _let_go(response)
            self._sleep(wait)

    def close(self) -> None:
        """Close the wrapped transport."""
        self._wrapped.close()


class AsyncRetryTransport(httpx.AsyncBaseTransport):
    """For `httpx.AsyncClient(transport=…)`, on asyncio and trio."""

    def __init__(
        self,
        wrapped: httpx.AsyncBaseTransport | None = None,
        retries: Retries | None = None,
        *,
        sleep: Callable[[float], Awaitable[object]] = anyio.sleep,
    ) -> None:
        """Wrap a transport, which is closed with this one; see `RetryTransport`."""
        self._wrapped = wrapped or httpx.AsyncHTTPTransport()
        self.retries = retries or Retries()
        self._sleep = sleep

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """See `RetryTransport.handle_request`."""
        attempts = _begin(self.retries, request)
        while True:
            try:
                response = await self._wrapped.handle_async_request(request)
            except _BROKEN:
                wait = attempts.after_error()
                if wait is None:
                    raise
            else:
                wait = attempts.after_answer(response.status_code, response.headers)
                if wait is None:
                    return response
                await _let_go_async(response)
            await self._sleep(wait)

    async def aclose(self) -> None:
        """Close the wrapped transport."""
        await self._wrapped.aclose()


def _begin(retries: Retries, request: httpx.Request) -> Attempts:
    marked = request.extensions.get(MARK)
    if marked is not None and not isinstance(marked, bool):
        raise InvalidField(f"extensions[{MARK!r}]", marked, "True or False")
    # Any other stream is read as it is sent, and a file would go out empty the second time.
    return retries.begin(request.method, marked=marked, replayable=isinstance(request.stream, httpx.ByteStream))


def _is_worth_reading(response: httpx.Response) -> bool:
    return not response.is_stream_consumed and is_worth_reading(response.headers.get("content-length", ""))


def _let_go(response: httpx.Response) -> None:
    """Read a short answer to its end: a connection with an answer half read must be closed."""
    try:
        if _is_worth_reading(response):
            for _ in response.iter_raw():
                pass
    except httpx.TransportError:
        pass  # the connection is lost, but the server has answered
    finally:
        response.close()


async def _let_go_async(response: httpx.Response) -> None:
    try:
        if _is_worth_reading(response):
            async for _ in response.aiter_raw():
                pass
    except httpx.TransportError:
        pass  # as above
    finally:
        await response.aclose()
