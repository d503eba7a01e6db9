"""Faust apps that are built and never started: for tests of what stands on them without a broker."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import faust
from mode.threads import ServiceThread

_numbers = itertools.count()


@contextmanager
def idle_app() -> Iterator[faust.App]:
    """An app of its own name; the loops of threads that it made and never started are closed at the end."""
    threads: list[Any] = []
    plain = ServiceThread.__init__

    def noted(self: Any, *arguments: Any, **named: Any) -> None:
        threads.append(self)
        plain(self, *arguments, **named)

    with patch.object(ServiceThread, "__init__", noted):
        yield faust.App(
            f"idle-{next(_numbers)}",
            broker="kafka://127.0.0.1:9",
            loop=asyncio.get_running_loop(),
            web_enabled=False,
            stream_wait_empty=False,
        )
    for thread in threads:
        thread.thread_loop.close()
