"""Notices that the topic which is read was deleted and made anew: another log has its name, and offsets begin again.

Nothing that is delivered says so. Reads only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from aggregator.broker import LogUnavailable

#: Seconds between two questions.
EVERY_S = 2.0
#: How long one question waits for its answer.
ANSWER_S = 5.0


async def until_another(ask: Callable[[], Awaitable[str]], log_id: str, *, every_s: float = EVERY_S) -> str:
    """Return the id of the log that has taken the place of `log_id`; not before one has.

    A broker that is away, or has no such topic just now, has not said anything: it is asked again.

    Args:
        ask: which log it is now; raises LogUnavailable if that is not known.
        log_id: the log that is read.
        every_s: pause before each question.
    """
    while True:
        await asyncio.sleep(every_s)
        with suppress(LogUnavailable):
            found = await ask()
            if found != log_id:
                return found
