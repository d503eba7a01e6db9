"""What one ask costs the owner: µs of the server per script call at k = 4, 30 and 240, and asks per second.

Every call settles a grant, lends another one and counts the copy: the full path. The server is the embedded one,
started here and ended here. The run checks its own counts: what the buckets have left is what was sold less what the
copies spent; if not, it exits with 1 and the figures are worth nothing.

    python -m benchmarks.owner [--json FILE] [--calls N] [--rounds N]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from statistics import median

import redis

from benchmarks.report import Result, WrongCount, report
from enforcer.messages import Answer, Ask, AskFault, SettleCause, Settlement
from enforcer.owners.port import Owner
from enforcer.owners.redis import RedisOwner
from enforcer.types import Grant, Plan
from tallygate.engines.valkey import start_valkey

KS = (4, 30, 240)
CALLERS = 50
PIPELINED = 50
STOCK = 10
#: Hardly refills, so that the level is an account of what was spent.
PLAN = Plan("still", 1e-9, 2**31)
LIMIT = "rate"


class Fleet:
    """k copies that ask for the same callers by turns, each settling what it got last time."""

    def __init__(self, owner: Owner, k: int) -> None:
        self._owner = owner
        self._k = k
        self._turn = 0
        self._held: dict[tuple[int, int], Grant] = {}
        self._ask_no = 0
        self._spent = [0] * CALLERS

    def ask(self, calls: int) -> None:
        """So many asks, pipelined."""
        for _ in range(calls // PIPELINED):
            asking = [self._next() for _ in range(PIPELINED)]
            answers = _answers(
                self._owner.ask([self._build(caller, copy, waiting=1, want=STOCK) for caller, copy in asking])
            )
            for (caller, copy), answer in zip(asking, answers, strict=True):
                if answer.grant is None:
                    raise WrongCount(f"copy {copy} was refused, although the bucket of caller {caller} is full")
                self._held[caller, copy] = answer.grant

    def check(self) -> None:
        """Settle all, and compare.

        Raises:
            WrongCount: the level of a bucket is not what was sold less what was spent.
        """
        for caller, copy in list(self._held):
            self._owner.ask([self._build(caller, copy, waiting=0, want=0)])
        for caller in range(CALLERS):
            level = _answers(self._owner.ask([self._build(caller, self._k, waiting=0, want=0)]))[0].tokens
            expected = PLAN.burst - self._spent[caller]
            if abs(level - expected) > 0.5:
                raise WrongCount(f"bucket of caller {caller} at k = {self._k} holds {level}, expected {expected}")

    def _next(self) -> tuple[int, int]:
        self._turn += 1
        return self._turn % CALLERS, self._turn // CALLERS % self._k

    def _build(self, caller: int, copy: int, *, waiting: int, want: int) -> Ask:
        """Two thirds of the last grant were spent."""
        held = self._held.pop((caller, copy), None)
        settled: tuple[Settlement, ...] = ()
        if held is not None:
            spent = held.size * 2 // 3
            self._spent[caller] += spent
            settled = (Settlement(held.grant_id, spent, True, SettleCause.ASK),)
        self._ask_no += 1
        member = f"gw-{copy:03d}/1795990901787224"
        name = f"bench-{self._k}-{caller}"
        return Ask(name, LIMIT, PLAN, member, self._ask_no, settled, waiting, want, 5.0, 0, 0.5)


class TokenBucket:
    """The yardstick, over as many callers, pipelined alike."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        script = files("benchmarks").joinpath("lua/token_bucket.lua").read_text(encoding="utf-8")
        self._digest = client.script_load(script)
        self._turn = 0

    def ask(self, calls: int) -> None:
        """So many requests, pipelined."""
        for _ in range(calls // PIPELINED):
            pipeline = self._client.pipeline(transaction=False)
            for _ in range(PIPELINED):
                self._turn += 1
                pipeline.evalsha(self._digest, 1, f"yardstick-{self._turn % CALLERS}", 1_000_000, 2_000_000, 1)
            pipeline.execute()


def _answers(outcomes: Sequence[Answer | AskFault]) -> list[Answer]:
    faults = [outcome.cause for outcome in outcomes if isinstance(outcome, AskFault)]
    if faults:
        raise WrongCount(f"the owner could not read a bucket: {faults[0]}")
    return [outcome for outcome in outcomes if isinstance(outcome, Answer)]


def server_us_per_call(client: redis.Redis, target: Fleet | TokenBucket, calls: int) -> float:
    """The server's own count of microseconds in scripts, by calls, over so many calls."""
    before = client.info("commandstats").get("cmdstat_evalsha", {"calls": 0, "usec": 0})
    target.ask(calls)
    after = client.info("commandstats")["cmdstat_evalsha"]
    counted = int(after["calls"]) - int(before["calls"])
    if counted < calls:
        raise WrongCount(f"the server counted {counted} calls of {calls}")
    return (int(after["usec"]) - int(before["usec"])) / counted


def asks_per_s(fleet: Fleet, calls: int) -> float:
    """By one client in this process; most of it is the client's own time."""
    started = time.perf_counter()
    fleet.ask(calls)
    return calls / (time.perf_counter() - started)


def measure(url: str, *, calls: int, rounds: int) -> list[Result]:
    """Interleaved rounds; the least of each is its cost, because other load on the machine only adds.

    Raises:
        WrongCount: the buckets do not hold what they must.
    """
    owner = RedisOwner(url, timeout_s=10.0)
    client = redis.Redis.from_url(url)
    fleets = {k: Fleet(owner, k) for k in KS}
    yardstick = TokenBucket(client)
    for k, fleet in fleets.items():
        fleet.ask(k * CALLERS)
    yardstick.ask(CALLERS)
    costs: dict[int, list[float]] = {k: [] for k in KS}
    bare: list[float] = []
    rates: list[float] = []
    for _ in range(rounds):
        for k, fleet in fleets.items():
            costs[k].append(server_us_per_call(client, fleet, calls))
        bare.append(server_us_per_call(client, yardstick, calls))
        rates.append(asks_per_s(fleets[KS[0]], calls))
    for fleet in fleets.values():
        fleet.check()
    owner.close()
    client.close()
    least = {k: min(costs[k]) for k in KS}
    return [
        *(Result(f"script_k{k}_us", least[k], "µs", "<= 40", "<= 25") for k in KS),
        Result("script_k240_over_k4", least[240] / least[4], "×", "< 1.5", "< 1.2"),
        *(Result(f"script_k{k}_median_us", median(costs[k]), "µs") for k in KS),
        Result("token_bucket_us", min(bare), "µs"),
        Result("script_over_token_bucket", least[4] / min(bare), "×", "< 2.5"),
        Result("asks_per_s", max(rates), "/s"),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report; 1 if the counts differ. A missed bound is marked in the table: machines are noisy."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.owner", description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--calls", type=int, default=10_000, help="calls in a round, for each k")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds")
    chosen = parser.parse_args(arguments)
    calls, rounds = max(PIPELINED, chosen.calls), max(1, chosen.rounds)
    server = start_valkey()
    try:
        return report(lambda: measure(server.url, calls=calls, rounds=rounds), chosen.json)
    finally:
        server.stop()


if __name__ == "__main__":
    sys.exit(main())
