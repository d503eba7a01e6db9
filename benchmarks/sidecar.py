"""What the sidecar costs: `POST /check` over 16 kept-alive connections, the server in a process of its own.

Twice: without a record, and with every decision going to Kafka, whose cost is then in the figure. CPU time is the
server's, from /proc; the load generator runs beside it, so latencies are those of a busy machine. Every answer must be
an admission, nothing of the record may be lost, and the end must be orderly, or the run fails. The owner is an embedded
Valkey, the log an embedded broker.
Run: ``python -m benchmarks.sidecar [--json FILE]``.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import uvloop

from benchmarks.report import Result, WrongCount, report
from tallygate.engines.tansu import start_tansu
from tallygate.engines.valkey import start_valkey

_CONNECTIONS = 16
_BODY = b'{"caller":"acme","scope":"GET /items/{id}","cost":1}'
_REQUEST = b"POST /check HTTP/1.1\r\nhost: sidecar\r\ncontent-length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
#: Longer than decisions wait for their block.
_SHIPPED_S = 1.5
_POLICY = "{version: 1, plans: {p: {rate_per_s: 10000000, burst: 10000000}}, default_plan: p}"


async def _connection(port: int, count: int, waits_s: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(count):
        before = time.perf_counter()
        writer.write(_REQUEST)
        head = await reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"content-length: (\d+)", head)
        body = await reader.readexactly(int(found[1]) if found else 0)
        waits_s.append(time.perf_counter() - before)
        if b'"allowed":true' not in body:
            raise WrongCount(body.decode())
    writer.close()


async def _load(port: int, count: int) -> list[float]:
    waits_s: list[float] = []
    await asyncio.gather(*(_connection(port, count // _CONNECTIONS, waits_s) for _ in range(_CONNECTIONS)))
    return sorted(waits_s)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(count: int, folder: Path) -> list[Result]:
    """Both runs. Raises `WrongCount`."""
    policy = folder / "policy.yaml"
    policy.write_text(_POLICY)
    valkey = start_valkey(log_dir=folder)
    environ = {**os.environ, "TALLYGATE_POLICY": str(policy), "TALLYGATE_OWNER_URL": valkey.url}
    environ.pop("TALLYGATE_KAFKA", None)
    try:
        results = _run("sidecar", [], environ, count)
        broker = start_tansu(log_dir=folder / "kafka")
        try:
            environ["TALLYGATE_KAFKA"] = broker.bootstrap
            return results + _run("sidecar_recorded", ["--kafka"], environ, count)
        finally:
            broker.stop()
    finally:
        valkey.stop()


def _run(name: str, words: list[str], environ: dict[str, str], count: int) -> list[Result]:
    """One warm-up, one run, until all of it is shipped."""
    command = [sys.executable, "-m", "tallygate", "sidecar", "--listen", "127.0.0.1:0", *words]
    server = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True)
    try:
        line = server.stderr.readline() if server.stderr else ""
        found = re.search(r"listens on \S+:(\d+)", line)
        if found is None:
            raise WrongCount(line)
        port = int(found[1])
        uvloop.run(_load(port, count // 4))
        before_s = _cpu_s(server.pid)
        waits_s = uvloop.run(_load(port, count))
        time.sleep(_SHIPPED_S)
        spent_s = _cpu_s(server.pid) - before_s
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
            lost = re.findall(r"^tallygate_sink_lost_total\{.*\} (\S+)$", page.read().decode(), re.MULTILINE)
    finally:
        server.terminate()
        _, said = server.communicate(timeout=15)
    if server.returncode != 0 or any(map(float, lost)) or len(lost) != 2 * len(words) or "ERROR" in said:
        raise WrongCount(f"status {server.returncode}, lost {lost}: {said}")
    done = len(waits_s)
    return [
        Result(f"{name}_per_cpu_s", done / spent_s, "/s", must=">= 8000", goal="> 8800"),
        Result(f"{name}_p50_ms", waits_s[done // 2] * 1e3, "ms"),
        Result(f"{name}_p99_ms", waits_s[done * 99 // 100] * 1e3, "ms", goal="< 5.1"),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if every answer was an admission, whatever the figures are; 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sidecar", description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="also write the results there")
    parser.add_argument("--requests", type=int, default=80_000, help="how many (default 80,000)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        return report(lambda: measure(options.requests, Path(folder)), options.json)


if __name__ == "__main__":
    sys.exit(main())
