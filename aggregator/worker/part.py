"""What a Faust process is made of. Holds references, does nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import faust

from aggregator.worker.log_view import KafkaView
from aggregator.worker.ports import FaustJob


@dataclass(frozen=True, slots=True)
class FaustPart:
    """What one process does: a job, the Faust app that feeds it, and how both are looked after.

    Attributes:
        group: its consumer group.
        topic: what it reads, `view` a look at that, and `log_id` its id.
        flush_s: seconds between two writes.
        said: what the process does, for its log.
        say: called often; writes a line about the state when it is due.
        finish: awaited after the last write, at most the given seconds.
        close: releases connections.
    """

    app: faust.App
    job: FaustJob
    group: str
    topic: str
    view: KafkaView
    log_id: str
    flush_s: float
    said: str
    say: Callable[[], None]
    finish: Callable[[float], Awaitable[None]]
    close: Callable[[], None]
