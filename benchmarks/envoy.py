"""What Envoy's rate-limit service costs: ShouldRateLimit over a real connection, with 16 calls in flight.

The service runs in a process of its own, on an owner in its memory that always grants; its CPU time is read before and
after, so that what the caller here costs does not count. Every answer is checked. Rounds; the best is reported.
Run: ``python -m benchmarks.envoy [--json FILE]``.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import Result, WrongCount, report
from benchmarks.stand_ins import CountingSink, GenerousOwner
from enforcer.envoy.server import start
from enforcer.envoy.stubs import METHOD, SERVICE, RateLimitDescriptor, RateLimitRequest, RateLimitResponse, grpc
from enforcer.identity import new_identity
from enforcer.limiting.limiter import Limiter
from enforcer.policies.model import Policy

_IN_FLIGHT = 16
_CALLERS = 100
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_POLICY = {
    "version": 1,
    "plans": {"p": {"rate_per_s": 1e8, "burst": 100_000_000}},
    "default_plan": "p",
    "scopes": {"GET /items/{id}": {}, "POST /orders": {}},
    "envoy": {
        "domains": {
            "shop": {"rules": {"r": {"caller": "{account}", "route": {"method": "method", "path": "path"}}}},
        }
    },
}


async def _serve() -> None:
    """The service, until its standard input ends. Says its port first."""
    identity = new_identity("bench", unix_ms=1, pid=os.getpid())
    limiter = Limiter(Policy.model_validate(_POLICY), GenerousOwner(10_000_000), CountingSink(), identity)
    server = await start(limiter, "127.0.0.1:0")
    print(server.port, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(1)
    limiter.close()


def _call(number: int) -> bytes:
    values = {"account": f"caller-{number}", "method": "GET", "path": f"/items/{number}?page=2"}
    entries = [RateLimitDescriptor.Entry(key=key, value=value) for key, value in values.items()]
    request = RateLimitRequest(domain="shop", descriptors=[RateLimitDescriptor(entries=entries)])
    encoded: bytes = request.SerializeToString()
    return encoded


async def _round(port: int, calls: int) -> list[float]:
    """Latencies of `calls` calls, seconds, with so many in flight. Raises `WrongCount` if one was not admitted."""
    messages = [_call(number) for number in range(_CALLERS)]
    latencies: list[float] = []
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        ask: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{SERVICE}/{METHOD}")

        async def lane(first: int) -> None:
            for number in range(first, calls, _IN_FLIGHT):
                before = time.perf_counter()
                answer = await ask(messages[number % _CALLERS])
                latencies.append(time.perf_counter() - before)
                if RateLimitResponse.FromString(answer).overall_code != RateLimitResponse.OK:
                    raise WrongCount(f"call {number} was not admitted")

        await asyncio.gather(*(lane(first) for first in range(_IN_FLIGHT)))
    if len(latencies) != calls:
        raise WrongCount(f"{calls} calls, {len(latencies)} answers")
    return latencies


def _cpu_s(pid: int) -> float:
    """CPU time of a process so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


async def measure(*, rounds: int, calls: int) -> list[Result]:
    """Run the service and the rounds. Raises `WrongCount` if an answer is missing or wrong."""
    pipe = asyncio.subprocess.PIPE
    service = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.envoy", "--serve", stdin=pipe, stdout=pipe
    )
    if service.stdin is None or service.stdout is None:
        raise WrongCount("the service has no pipes")
    per_cpu_s, p99_ms = 0.0, float("inf")
    try:
        port = int(await service.stdout.readline())
        await _round(port, _CALLERS * 2)
        for _ in range(rounds):
            before = _cpu_s(service.pid)
            latencies = sorted(await _round(port, calls))
            per_cpu_s = max(per_cpu_s, calls / (_cpu_s(service.pid) - before))
            p99_ms = min(p99_ms, latencies[int(len(latencies) * 0.99)] * 1e3)
    finally:
        service.stdin.close()
        await service.wait()
    return [Result("envoy_per_cpu_s", per_cpu_s, "/s"), Result("envoy_p99_ms", p99_ms, "ms")]


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if every call was answered as it must be, whatever the figures are; 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.envoy", description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="also write the results there")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default 3)")
    parser.add_argument("--calls", type=int, default=10_000, help="calls per round (default 10,000)")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        asyncio.run(_serve())
        return 0
    return report(lambda: asyncio.run(measure(rounds=options.rounds, calls=options.calls)), options.json)


if __name__ == "__main__":
    sys.exit(main())
