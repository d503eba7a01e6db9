"""What a decision costs on its way to the log: ``python -m benchmarks.wire [--json FILE]``.

Encodes the traffic of one copy (500 decisions/s, Zipf over 2,000 or 20,000 callers and 12 scopes, blocks of 2,000;
"hot": 5,000/s of 20 callers), compresses each block with its Kafka headers as the producer does (lz4), decodes it, and
compares every column with what went in; a difference fails the run. `encode_python_ns` is what an installation without
a C compiler pays. Times are the least of several rounds, block by block; the verdicts of all blocks together are larger
than a core's cache, as they are in a gateway.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import TypeVar

import lz4.frame

from benchmarks.report import Result, write
from benchmarks.traffic import zipf_blocks
from enforcer.identity import CopyIdentity
from enforcer.types import Verdict
from stream.buffer import BufferLimits, DecisionBuffer, take_head
from stream.contract.block import DecisionBlock
from stream.contract.codec import BlockEncoder, decode_block, hash_block
from stream.contract.envelope import DECISIONS_EVENT, event_headers
from stream.contract.reading import BEST, COMPILED, IN_PYTHON, Reader

_IDENTITY = CopyIdentity("gw-017", 1_795_991_556_929 << 20 | 4711)
_BLOCKS = 20
_DECISIONS = 2_000
_ROUNDS = 15
_In = TypeVar("_In")


def _least_ns(work: Callable[[_In], object], inputs: Sequence[_In], decisions: int) -> float:
    """Nanoseconds per decision: the least time of each input over the rounds, summed."""
    least = [float("inf")] * len(inputs)
    for _ in range(_ROUNDS):
        for number, one in enumerate(inputs):
            started = perf_counter_ns()
            work(one)
            least[number] = min(least[number], perf_counter_ns() - started)
    return sum(least) / decisions


class _Codec:
    """One copy's encoder, and what its producer adds."""

    def __init__(self, reader: Reader = BEST) -> None:
        self._encoder = BlockEncoder(reader)
        headers = event_headers(DECISIONS_EVENT, _IDENTITY, 0)
        self._around = b"".join([b"gw-017", *(part for name, value in headers for part in (name.encode(), value))])

    def encode(self, verdicts: list[Verdict]) -> bytes:
        data = self._encoder.encode(
            verdicts,
            copy_id=_IDENTITY.copy_id,
            epoch=_IDENTITY.epoch,
            first_seq=verdicts[0].seq,
            sealed_at_us=1_795_991_560_000_000,
            clock_offset_ns=0,
        )
        hash_block(data)
        return data

    def compress(self, data: bytes) -> bytes:
        compressed: bytes = lz4.frame.compress(self._around + data, block_linked=False)
        return compressed

    def encode_and_compress(self, verdicts: list[Verdict]) -> bytes:
        return self.compress(self.encode(verdicts))


def _check(verdicts: list[Verdict], block: DecisionBlock) -> None:
    """Raise `SystemExit` unless the block holds exactly these verdicts."""
    bases = block.bases
    columns = {
        "seq": ([v.seq for v in verdicts], list(range(block.first_seq, block.first_seq + block.count))),
        "at_us": ([v.at_ns // 1000 for v in verdicts], block.at_us.tolist()),
        "code": ([v.code for v in verdicts], block.code.tolist()),
        "cost": ([v.cost for v in verdicts], block.cost.tolist()),
        "remaining": ([v.remaining for v in verdicts], block.remaining.tolist()),
        "retry_after_ms": ([v.retry_after_ms for v in verdicts], block.retry_after_ms.tolist()),
        "caller": ([v.basis.caller for v in verdicts], [bases.callers[i] for i in bases.caller[block.basis]]),
        "scope": ([v.basis.scope for v in verdicts], [bases.scopes[i] for i in bases.scope[block.basis]]),
        "burst": ([v.basis.plan.burst for v in verdicts], [bases.plans[i].burst for i in bases.plan[block.basis]]),
        "grant_id": ([v.basis.grant_id for v in verdicts], bases.grant_id[block.basis].tolist()),
        "k": ([v.basis.k for v in verdicts], bases.k[block.basis].tolist()),
    }
    for name, (expected, found) in columns.items():
        if expected != found:
            raise SystemExit(f"column {name} of the block from seq {block.first_seq} came back changed")


def _wire(suffix: str, *, callers: int, rate_per_s: float = 500.0, bounded: bool = False) -> list[Result]:
    blocks = zipf_blocks(_BLOCKS, decisions=_DECISIONS, callers=callers, scopes=12, rate_per_s=rate_per_s)
    total = _BLOCKS * _DECISIONS
    codec = _Codec()
    encoded = [codec.encode(verdicts) for verdicts in blocks]
    for verdicts, data in zip(blocks, encoded, strict=True):
        _check(verdicts, decode_block(data))
    wire_bytes = sum(len(codec.compress(data)) for data in encoded) / total
    bases = sum(len(decode_block(data).bases.caller) for data in encoded) / total
    must_ns, must_bytes, goal_ns, goal_bytes = ("<= 300", "<= 30", "<= 120", "<= 18") if bounded else (None,) * 4
    return [
        Result(f"encode_ns{suffix}", _least_ns(codec.encode, blocks, total), "ns", must_ns, goal_ns),
        Result(
            f"encode_compress_ns{suffix}", _least_ns(codec.encode_and_compress, blocks, total), "ns", must_ns, goal_ns
        ),
        Result(f"encode_python_ns{suffix}", _least_ns(_Codec(IN_PYTHON).encode, blocks, total), "ns"),
        Result(f"wire_bytes{suffix}", wire_bytes, "B", must_bytes, goal_bytes),
        Result(f"raw_bytes{suffix}", sum(map(len, encoded)) / total, "B"),
        Result(f"bases_per_decision{suffix}", bases, ""),
        Result(f"decode_ns{suffix}", _least_ns(decode_block, encoded, total), "ns", None, "<= 50" if bounded else None),
    ]


def _capture() -> list[Result]:
    """What the request path pays beyond calling a function that does nothing, and what the thread pays to cut."""
    verdicts = zipf_blocks(1, decisions=20_000, callers=2_000, scopes=12, rate_per_s=500.0)[0]

    def forget(verdict: Verdict) -> None:
        """Take a verdict and keep nothing."""

    def run(capture: Callable[[Verdict], None]) -> None:
        for verdict in verdicts:
            capture(verdict)

    def capture_all(_: object) -> None:
        captured: list[Verdict] = []
        run(captured.append)

    def cut_all(_: object) -> None:
        limits = BufferLimits(_DECISIONS, 1.0, 5.0, 2.0, 10**9)
        buffer = DecisionBuffer(limits, now_s=0.0)
        buffer.add(take_head(list(verdicts)), now_s=0.0)
        if sum(len(cut.verdicts) for cut in buffer.cut(now_s=0.0)) != len(verdicts):
            raise SystemExit("the buffer lost decisions")

    count = len(verdicts)
    nothing = _least_ns(lambda _: run(forget), [None], count)
    return [
        Result("capture_ns", _least_ns(capture_all, [None], count), "ns"),
        Result("capture_of_nothing_ns", nothing, "ns"),
        Result("cut_ns", _least_ns(cut_all, [None], count), "ns"),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print the table, write the JSON; 1 if the counts differ. A missed bound is marked in the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wire", description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="write the results there as well")
    options = parser.parse_args(arguments)
    if COMPILED is None:
        print("built without a C compiler: verdicts are read in Python")
    results = [
        *_wire("", callers=2_000, bounded=True),
        *_wire("_20k", callers=20_000),
        *_wire("_hot", callers=20, rate_per_s=5_000.0),
        *_capture(),
    ]
    write(results, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
