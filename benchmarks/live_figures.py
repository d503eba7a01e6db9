"""What the live figures cost a decision: ``python -m benchmarks.live_figures [--rate R --seconds S … --json FILE]``.

The pure code of worker and second stage on the traffic of `benchmarks.pipeline`, step by step, in CPU time of this one
process: no broker, no database, no Faust, so that nothing else on the machine is in the figures. What the steps came
to is compared with what was decided; a difference fails the run.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from aggregator.core.live.arrow import RowNames, rows_table
from aggregator.core.live.load import put_blank, put_copies
from aggregator.core.live.rows import Cut, cut
from aggregator.core.live.shard import Shard
from aggregator.core.live.totals import ahead_of, fold, missing
from aggregator.core.live.usage_blocks import CallerTargets, blocks_of_cut, messages_of
from aggregator.core.record.acceptance import accept_block
from aggregator.core.signals.rows import Noteworthy, cut_signals, signals_table
from aggregator.core.signals.state import SignalShard, apply
from aggregator.store_clickhouse import arrow_stream
from benchmarks.pipeline.traffic import make_round, verdict
from benchmarks.report import Result, WrongCount, write
from stream.contract.codec import NO_HASH, NOTHING_YET, BlockEncoder, hash_block, totals_of
from stream.contract.usage import decode_usage

_BLOCK = 2_000
#: All that a copy decides has come up by then once, at the default rate: names are known, tables have grown.
_WARM_UP_S = 6
#: What is measured begins with a minute, whose first seconds are the dearest: every row in it is new.
_START_US = 1_772_323_200_000_000 + (60 - _WARM_UP_S) * 1_000_000
_NOW_MINUTE = _START_US // 60_000_000 + 1
_NOTEWORTHY = Noteworthy(60, "anonymous")
_STEPS = ("decode", "fold", "cut", "rows", "arrow", "tell")
_SIGNAL_STEPS = ("apply", "signal_rows")

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Traffic:
    """What is decided; `seconds` are those after the warm-up."""

    rate_per_s: float
    seconds: int
    copies: int
    callers: int

    def blocks_by_second(self) -> Iterator[list[tuple[int, bytes]]]:
        """For each second, (copy, block) for all blocks that are sealed in it, in order of time."""
        makers = [_Maker(number, self) for number in range(self.copies)]
        for second in range(1, _WARM_UP_S + self.seconds + 1):
            yield [(copy, data) for _, copy, data in sorted(one for maker in makers for one in maker.until(second))]


class _Maker:
    """Blocks of one copy: full ones as they fill, and the rest each second, as a sink cuts them."""

    def __init__(self, number: int, traffic: Traffic) -> None:
        self._number = number
        self._round = make_round(number, traffic.copies, traffic.callers)
        self._per_s = traffic.rate_per_s / traffic.copies
        self._encoder = BlockEncoder()
        self._hash, self._totals = NO_HASH, NOTHING_YET
        self._seq = 0

    def until(self, second: int) -> Iterator[tuple[int, int, bytes]]:
        last = round(second * self._per_s)
        while self._seq < last:
            seqs = range(self._seq, min(self._seq + _BLOCK, last))
            sealed_at_us = _START_US + int(seqs[-1] / self._per_s * 1_000_000)
            data = self._encoder.encode(
                [verdict(self._round, seq, int(seq / self._per_s * 1_000_000_000)) for seq in seqs],
                copy_id=f"bench-{self._number:03d}",
                epoch=1,
                first_seq=self._seq,
                sealed_at_us=sealed_at_us,
                clock_offset_ns=_START_US * 1000,
                prev_hash=self._hash,
                before=self._totals,
            )
            self._hash, self._totals, self._seq = hash_block(data), totals_of(data), seqs[-1] + 1
            yield sealed_at_us, self._number, data


@dataclass(slots=True)
class Costs:
    """CPU seconds by step; rows and bytes of what is written."""

    cpu_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    decisions: int = 0
    rows: int = 0
    bytes: int = 0
    told_bytes: int = 0
    signal_rows: int = 0

    def of(self, step: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do the work, and add its CPU time to the step."""
        before_ns = time.process_time_ns()
        done = work(*args, **kwargs)
        self.cpu_s[step] += (time.process_time_ns() - before_ns) / 1e9
        return done


class Stages:
    """Worker and second stage, as their shells drive them: fold each block, write and tell every so often."""

    def __init__(self, partitions: int) -> None:
        self.costs = Costs()
        self.decisions = 0
        self._shards = [Shard(number, "log", 0, 0) for number in range(partitions)]
        self._signals = [SignalShard(number) for number in range(partitions)]
        self._names = RowNames()
        self._targets = CallerTargets(partitions)

    def counted(self) -> tuple[int, int]:
        """Decisions in the totals of the worker, and in those of the second stage."""
        live = sum(int(one.usage.held[0][:, 0].sum()) for shard in self._shards for one in shard.minutes.values())
        told = sum(int(one.counts[:, 0].sum()) for shard in self._signals for one in shard.minutes.values())
        return live, told

    def take(self, copy: int, data: bytes) -> None:
        """One message of the decisions topic."""
        block = self.costs.of("decode", accept_block, data, appended_us=None).block
        shard = self._shards[copy % len(self._shards)]
        minutes, copies = missing(shard, block)
        if minutes:
            put_blank(shard, ahead_of(minutes[0]), [])
        put_copies(shard, copies, [])
        self.decisions += block.count
        self.costs.decisions += block.count
        self.costs.of("fold", fold, shard, block, shard.next_offset)

    def flush(self) -> None:
        """Write what changed, and tell it."""
        costs = self.costs
        cuts = [costs.of("cut", cut, shard, told_from=0) for shard in self._shards]
        table = costs.of("rows", rows_table, cuts, self._names, lean=True)
        costs.rows += table.num_rows
        costs.bytes += len(costs.of("arrow", arrow_stream, table))
        for target, value in costs.of("tell", self._messages, cuts):
            costs.told_bytes += len(value)
            costs.of("apply", self._apply, target, value)
        costs.signal_rows += costs.of("signal_rows", self._signal_rows)

    def _messages(self, cuts: list[Cut]) -> list[tuple[int, bytes]]:
        told = (pair for one in cuts for pair in blocks_of_cut(one, "table", self._targets))
        return [(target, value) for target, block in told for value in messages_of(block)]

    def _apply(self, target: int, value: bytes) -> None:
        apply(self._signals[target], decode_usage(value), now_minute=_NOW_MINUTE)

    def _signal_rows(self) -> int:
        table = signals_table([part for shard in self._signals for part in cut_signals(shard, _NOTEWORTHY)])
        arrow_stream(table)
        return int(table.num_rows)


def measure(traffic: Traffic, *, partitions: int, flush_s: int) -> list[Result]:
    """CPU µs a decision of each step.

    Raises:
        WrongCount: the totals are not what was decided.
    """
    stages = Stages(partitions)
    last_s = _WARM_UP_S + traffic.seconds
    for second, blocks in enumerate(traffic.blocks_by_second(), 1):
        for copy, data in blocks:
            stages.take(copy, data)
        if second % flush_s == 0 or second in {_WARM_UP_S, last_s}:
            stages.flush()
        if second == _WARM_UP_S:
            stages.costs = Costs()
    costs, decisions = stages.costs, stages.decisions
    if stages.counted() != (decisions, decisions):
        raise WrongCount(f"{stages.counted()} of {decisions} decisions are in the totals of the two stages")
    decisions = costs.decisions
    cpu_us = {step: costs.cpu_s[step] * 1e6 / decisions for step in (*_STEPS, *_SIGNAL_STEPS)}
    return [
        *(Result(f"worker_{step}_us", cpu_us[step], "µs/decision") for step in _STEPS),
        Result("worker_us", sum(cpu_us[step] for step in _STEPS), "µs/decision"),
        *(Result(f"signals_{step}_us", cpu_us[step], "µs/decision") for step in _SIGNAL_STEPS),
        Result("live_rows", costs.rows / traffic.seconds, "/s"),
        Result("live_bytes", costs.bytes / traffic.seconds, "/s"),
        Result("told_bytes", costs.told_bytes / traffic.seconds, "/s"),
        Result("signals_rows", costs.signal_rows / traffic.seconds, "/s"),
    ]


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.live_figures")
    parser.add_argument("--rate", type=float, default=200_000.0, help="decisions per second, all copies (200000)")
    parser.add_argument("--seconds", type=int, default=10, help="how long (10)")
    parser.add_argument("--copies", type=int, default=16, help="enforcer copies (16)")
    parser.add_argument("--callers", type=int, default=20_000, help="callers, by Zipf's law (20000)")
    parser.add_argument("--partitions", type=int, default=4, help="partitions of each topic (4)")
    parser.add_argument("--flush", type=int, default=1, help="seconds between two writes (1)")
    parser.add_argument("--json", metavar="FILE", help="write the results there, too")
    args = parser.parse_args()
    traffic = Traffic(args.rate, args.seconds, args.copies, args.callers)
    write(measure(traffic, partitions=args.partitions, flush_s=args.flush), args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
