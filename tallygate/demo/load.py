"""Real HTTP traffic to the demonstration's gateways, and an exact count of what came back.

Open loop: every request has its time, whether or not the one before it was answered. Nothing is retried, so that each
request sent is one decision.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import aiohttp

from tallygate.demo.callers import CALLERS, DemoCaller, path_of, rates

#: Requests of one caller that may be under way at once; beyond it the pace gives way, and the count still holds.
_MOST_IN_FLIGHT = 64
_REQUEST_TIMEOUT_S = 15


@dataclass(slots=True)
class Seen:
    """What the HTTP client saw of one caller."""

    sent: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    last_request_id: str | None = None


class Load:
    """Requests from all demonstration callers to a list of gateway addresses."""

    def __init__(self, gateways: Sequence[str], *, rate_per_s: float) -> None:
        self.seen = {caller.name: Seen() for caller in CALLERS}
        self._gateways = list(gateways)
        self._rates = rates(rate_per_s)
        self._down: set[str] = set()
        self._stopping = asyncio.Event()
        #: Requests that each gateway answered, by its address.
        self.answered_by: Counter[str] = Counter()

    @property
    def answered(self) -> int:
        """Requests that were answered so far, by any status."""
        return sum(seen.statuses.total() for seen in self.seen.values())

    def without(self, gateway: str) -> None:
        """Send no more to this one, as a load balancer does; its requests go to the others, if there are any."""
        self._down.add(gateway)
        if self._down.issuperset(self._gateways):
            self.stop()

    def stop(self) -> None:
        """Send no more; `run` returns once all that was sent is answered."""
        self._stopping.set()

    async def run(self, seconds: float) -> None:
        """Send for this long, then wait for every answer."""
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_REQUEST_TIMEOUT_S)
        timeout = aiohttp.ClientTimeout(total=_REQUEST_TIMEOUT_S)
        session = aiohttp.ClientSession(connector=connector, timeout=timeout)
        async with session, asyncio.TaskGroup() as group:
            for place, caller in enumerate(CALLERS):
                group.create_task(self._send_all(session, caller, place, seconds))

    async def _send_all(self, session: aiohttp.ClientSession, caller: DemoCaller, place: int, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        gateways, down = self._reached_by(caller, place), 0
        every_s = 1 / self._rates[caller.name]
        room = asyncio.Semaphore(_MOST_IN_FLIGHT)
        start = loop.time()
        async with asyncio.TaskGroup() as group:
            number = 0
            while (due := start + number * every_s) < start + seconds and not self._stopping.is_set():
                if (wait_s := due - loop.time()) > 0:
                    await asyncio.sleep(wait_s)
                await room.acquire()
                if down != len(self._down):
                    gateways, down = self._reached_by(caller, place), len(self._down)
                gateway = gateways[number % len(gateways)] if gateways else self._gateways[0]
                group.create_task(self._send_one(session, caller.name, gateway, number, room))
                number += 1

    def _reached_by(self, caller: DemoCaller, place: int) -> list[str]:
        """The gateways that a caller's connections reach; none if all have ended."""
        up = [gateway for gateway in self._gateways if gateway not in self._down]
        reach = min(caller.reach or len(up), len(up))
        return [up[(place + number) % len(up)] for number in range(reach)]

    async def _send_one(
        self, session: aiohttp.ClientSession, caller: str, gateway: str, number: int, room: asyncio.Semaphore
    ) -> None:
        seen = self.seen[caller]
        seen.sent += 1
        try:
            async with session.get(gateway + path_of(number), headers={"x-account": caller}) as response:
                body = await response.read()
                seen.statuses[response.status] += 1
                self.answered_by[gateway] += 1
                if response.status == 429:
                    seen.last_request_id = _request_id(body)
        except (aiohttp.ClientError, TimeoutError) as error:
            seen.errors[type(error).__name__] += 1
        finally:
            room.release()


def _request_id(body: bytes) -> str | None:
    found = body.partition(b'"request_id":')[2].split(b'"')
    return found[1].decode() if len(found) > 1 else None
