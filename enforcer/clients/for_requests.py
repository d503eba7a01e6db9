"""An adapter for requests that waits for its tokens.

Never sends a body twice that it could read only once, and never holds a connection while it waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from enforcer.clients.core import is_worth_reading
from enforcer.clients.retries import Retries

try:
    import requests
    from requests.adapters import HTTPAdapter
    from requests.utils import rewind_body
except ImportError as fault:
    raise ImportError("enforcer.clients.for_requests needs requests: pip install 'tallygate[requests]'") from fault


class RetryAdapter(HTTPAdapter):
    """For `session.mount("https://api.example/", RetryAdapter())`. Like its lock, it cannot be pickled."""

    def __init__(
        self,
        retries: Retries | None = None,
        *,
        marked: bool | None = None,
        sleep: Callable[[float], object] = time.sleep,
        pool_connections: int = 10,
        pool_maxsize: int = 10,
        pool_block: bool = False,
    ) -> None:
        """Make an adapter whose only retries are these.

        Args:
            retries: shared with the other adapters to the same server; None: its own.
            marked: True: all requests through it may be sent again whatever their method; False: none; None: the
                method says.
            sleep: waits for so many seconds.
            pool_connections: see `HTTPAdapter`, and so for the next two.
            pool_maxsize: as there.
            pool_block: as there.
        """
        super().__init__(
            pool_connections=pool_connections, pool_maxsize=pool_maxsize, max_retries=0, pool_block=pool_block
        )
        self.retries = retries or Retries()
        self._marked = marked
        self._sleep = sleep

    def __reduce__(self) -> str:
        raise TypeError("a RetryAdapter cannot be pickled: its budget would no longer be shared")

    def send(self, request: requests.PreparedRequest, *given: Any, **named: Any) -> requests.Response:
        """Send until it is answered, or no longer worth it. Takes and raises what `HTTPAdapter.send` does."""
        attempts = self.retries.begin(request.method or "", marked=self._marked, replayable=_is_replayable(request))
        while True:
            try:
                response = super().send(request, *given, **named)
            except requests.ConnectionError as fault:
                # A certificate that is not trusted is no broken connection, though requests says so.
                wait = None if isinstance(fault, requests.exceptions.SSLError) else attempts.after_error()
                if wait is None:
                    raise
            else:
                wait = attempts.after_answer(response.status_code, response.headers)
                if wait is None:
                    return response
                _let_go(response)
            self._sleep(wait)
            if not _is_in_memory(request.body):
                rewind_body(request)


def _is_in_memory(body: object) -> bool:
    return body is None or isinstance(body, str | bytes)


def _is_replayable(request: requests.PreparedRequest) -> bool:
    """In memory, or in a file that stood at a known place and can be set back to it."""
    # requests remembers the place where it can tell it, and has no public name for it.
    known = isinstance(getattr(request, "_body_position", None), int)
    return _is_in_memory(request.body) or (known and hasattr(request.body, "seek"))


def _let_go(response: requests.Response) -> None:
    """Read a short answer to its end: a connection with an answer half read must be closed."""
    if is_worth_reading(response.headers.get("content-length", "")):
        response.raw.drain_conn()
    response.close()
