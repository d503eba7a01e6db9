"""What a decision costs: `check` with its record, a refusal, the middleware, and two peers in the same run.

Thread CPU time per decision, interleaved rounds, minimum and median; ratios are taken within a round. A refusal and an
admission do nearly the same, so they are compared by the minima of many short turns, with the freeing of what they
leave behind; two runs of one and the same code still differ by up to 2 %, which is the tolerance of that bound. It
checks its own counts: events captured = decisions made, tokens admitted = tokens settled.
Run: ``python -m benchmarks.check [--json FILE]``.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import limits
import limits.storage
import limits.strategies
import throttled
import throttled.store

from benchmarks.report import Result, WrongCount, report
from benchmarks.stand_ins import CountingSink, GenerousOwner
from enforcer.http.asgi import App, Message, RateLimitMiddleware, Receive, Scope, Send
from enforcer.identity import new_identity
from enforcer.limiting.limiter import Limiter
from enforcer.policies.model import Policy
from enforcer.settings import LimiterSettings

#: What a stream's buffer holds before it is swapped.
_BUFFER = 2_000
#: Scope of requests that are charged to three limits.
_THREE_LIMITS = "three-limits"
#: Short turns in which admissions and refusals are compared.
_TURNS = 250


class Bench:
    """One limiter and the peers, warmed up. Every figure is µs of thread CPU time per decision."""

    def __init__(self, decisions: int) -> None:
        self.decisions = decisions
        self.made = 0
        self.sink = CountingSink()
        policy = Policy.model_validate(
            {
                "version": 1,
                "plans": {"p": {"rate_per_s": 1e8, "burst": 100_000_000}},
                "default_plan": "p",
                "scopes": {_THREE_LIMITS: {}},
                "limits": {
                    name: {"by": "everyone", "rate_per_s": 1e8, "burst": 100_000_000, "scopes": [_THREE_LIMITS]}
                    for name in ("site", "fleet")
                },
            }
        )
        settings = LimiterSettings(threaded=False, idle_settle_s=3_600, evict_after_s=3_600)
        identity = new_identity("bench", unix_ms=1, pid=1)
        self.limiter = Limiter(policy, GenerousOwner(10_000_000), self.sink, identity, settings=settings)
        callers = [f"caller-{number}" for number in range(20_000)]
        chance = random.Random(7)
        self.uniform = [chance.choice(callers) for _ in range(decisions)]
        for caller in [*callers, "hot", "empty"]:
            for _ in range(2):
                self.limiter.check(caller)
        for _ in range(2):
            self.limiter.check("hot", _THREE_LIMITS)
        self.made += 2 * (len(callers) + 3)
        self.sink.count()
        self.sink.clear()
        self._limits = limits.strategies.FixedWindowRateLimiter(limits.storage.MemoryStorage())
        self._limits_item = limits.RateLimitItemPerHour(1_000_000_000)
        self._throttled = throttled.Throttled(
            using=throttled.RateLimiterType.TOKEN_BUCKET.value,
            quota=throttled.per_hour(1_000_000_000, burst=1_000_000_000),
            store=throttled.store.MemoryStore(),
        )

    def hot(self) -> float:
        """One caller that holds a grant."""
        return self._ours(["hot"] * self.decisions, admitted=True)

    def three_limits(self) -> float:
        """The same with three limits on each request."""
        return self._ours(["hot"] * self.decisions, admitted=True, scope=_THREE_LIMITS)

    def uniform_20k(self) -> float:
        """20,000 callers that hold grants, in random order."""
        return self._ours(self.uniform, admitted=True)

    def refusal(self) -> float:
        """One caller whose bucket is known to be empty."""
        return self._ours(["empty"] * self.decisions, admitted=False)

    def refusal_ratio(self) -> float:
        """What a refusal costs, in admissions: the least of many short turns each, one after the other.

        With the freeing of what they leave behind: an admission leaves one object more.
        """
        hot, empty = ["hot"] * _BUFFER, ["empty"] * _BUFFER
        turns = [
            (self._ours(hot, admitted=True, freed=True), self._ours(empty, admitted=False, freed=True))
            for _ in range(_TURNS)
        ]
        return min(refused for _, refused in turns) / min(admitted for admitted, _ in turns)

    def limits_memory(self) -> float:
        """`limits`, fixed window, in memory: one caller, always admitted."""
        hit, item = self._limits.hit, self._limits_item
        return self._peer(lambda: hit(item, "hot"))

    def throttled_memory(self) -> float:
        """`throttled-py`, token bucket, in memory: one caller, always admitted."""
        limit = self._throttled.limit
        return self._peer(lambda: not limit("hot").limited)

    def middleware(self) -> float:
        """The middleware around the smallest application, less that application alone."""
        return self._over(RateLimitMiddleware(_hello, self.limiter))

    def middleware_three_limits(self) -> float:
        """The same with three limits on each request, and so in each header."""
        return self._over(RateLimitMiddleware(_hello, self.limiter, scope_of=lambda _scope: _THREE_LIMITS))

    def _over(self, app: App) -> float:
        count = self.decisions // 10
        over = _requests_us(app, count) - _requests_us(_hello, count)
        self.made += count
        if self.sink.count() != count:
            raise WrongCount(f"{count} requests, another number of events")
        self.sink.clear()
        return over

    def finish(self) -> None:
        """Check that every decision is an event, and every admitted token one that a settlement states."""
        self.limiter.close()
        if self.made != self.sink.taken:
            raise WrongCount(f"{self.made} decisions made, {self.sink.taken} events captured")
        if self.sink.admitted_tokens != self.sink.settled_tokens:
            raise WrongCount(f"{self.sink.admitted_tokens} tokens admitted, {self.sink.settled_tokens} settled")

    def _ours(self, callers: Sequence[str], *, admitted: bool, freed: bool = False, scope: str = "default") -> float:
        check, sink = self.limiter.check, self.sink
        before_tokens = self.sink.admitted_tokens
        spent_ns = 0
        for start in range(0, len(callers), _BUFFER):
            part = callers[start : start + _BUFFER]
            before = time.thread_time_ns()
            for caller in part:
                check(caller, scope)
            spent_ns += time.thread_time_ns() - before
            if sink.count() != len(part):
                raise WrongCount(f"{len(part)} decisions, another number of events")
            before = time.thread_time_ns()
            sink.clear()
            spent_ns += time.thread_time_ns() - before if freed else 0
        self.made += len(callers)
        tokens = self.sink.admitted_tokens - before_tokens
        if tokens != (len(callers) if admitted else 0):
            raise WrongCount(f"{len(callers)} decisions, {tokens} tokens admitted")
        return spent_ns / len(callers) / 1e3

    def _peer(self, decide: Callable[[], bool]) -> float:
        count = self.decisions // 5
        admitted = 0
        before = time.thread_time_ns()
        for _ in range(count):
            admitted += decide()
        spent_ns = time.thread_time_ns() - before
        if admitted != count:
            raise WrongCount(f"a peer admitted {admitted} of {count}")
        return spent_ns / count / 1e3


async def _hello(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"hello"})


def _requests_us(app: App, count: int) -> float:
    """µs per request of `app`, called directly."""
    names = (b"host", b"accept", b"user-agent", b"accept-encoding")
    headers = [*((name, b"something") for name in names), (b"x-account", b"hot")]
    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/", "headers": headers}

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(_message: Message) -> None:
        return

    async def run() -> int:
        before = time.thread_time_ns()
        for _ in range(count):
            await app(scope, receive, send)
        return time.thread_time_ns() - before

    return asyncio.run(run()) / count / 1e3


def measure(*, rounds: int, decisions: int) -> list[Result]:
    """Run interleaved rounds. Raises `WrongCount` if events, decisions and tokens do not agree."""
    bench = Bench(decisions)
    kinds: dict[str, Callable[[], float]] = {
        "check_hot": bench.hot,
        "check_20k": bench.uniform_20k,
        "check_three_limits": bench.three_limits,
        "refuse": bench.refusal,
        "limits_memory": bench.limits_memory,
        "throttled": bench.throttled_memory,
        "middleware": bench.middleware,
        "middleware_three_limits": bench.middleware_three_limits,
    }
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(rounds):
        for name, run in kinds.items():
            times[name].append(run())
    refusal_ratio = bench.refusal_ratio()
    bench.finish()

    def ratio(name: str, to: str) -> float:
        return median(one / other for one, other in zip(times[name], times[to], strict=True))

    bounds: dict[str, tuple[str | None, str | None]] = {
        "check_hot": ("<= 0.8", "<= 0.5"),
        "check_20k": ("<= 2", "<= 1.2"),
        "middleware": ("<= 15", "<= 6"),
        "middleware_three_limits": ("<= 15", None),
    }
    results = [Result(f"{name}_us", min(times[name]), "µs", *bounds.get(name, (None, None))) for name in kinds]
    results += [Result(f"{name}_median_us", median(times[name]), "µs") for name in kinds]
    return [
        *results,
        Result("refuse_to_check_ratio", refusal_ratio, "×", must="<= 1.02", goal="<= 1"),
        Result("limits_to_check_ratio", ratio("limits_memory", "check_hot"), "×", goal=">= 6"),
        Result("throttled_to_check_ratio", ratio("throttled", "check_hot"), "×"),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if the counts agree, whatever the figures are; 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.check", description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="also write the results there")
    parser.add_argument("--rounds", type=int, default=9, help="interleaved rounds (default 9)")
    parser.add_argument("--decisions", type=int, default=40_000, help="decisions per round and kind (default 40,000)")
    options = parser.parse_args(arguments)
    return report(lambda: measure(rounds=options.rounds, decisions=options.decisions), options.json)


if __name__ == "__main__":
    sys.exit(main())
