"""However threads interleave and whatever goes missing: each seq comes out once, or stands in one loss."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from stream.buffer import BufferLimits, DecisionBuffer
from tests.verdicts import verdict

LIMITS = BufferLimits(block_decisions=7, flush_s=1.0, heartbeat_s=5.0, hold_back_s=2.0, max_held=40)


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[list[list[int]], int]:
    """Batches of seqs: some swapped, some missing, some twice; and how many decisions there were."""
    count = draw(st.integers(0, 120))
    missing = draw(st.sets(st.integers(0, max(count - 1, 0)), max_size=5))
    order = [seq for seq in range(count) if seq not in missing]
    for _ in range(draw(st.integers(0, 6))):
        if len(order) > 1:
            first = draw(st.integers(0, len(order) - 1))
            second = min(len(order) - 1, first + draw(st.integers(0, 15)))
            order[first], order[second] = order[second], order[first]
    order += draw(st.lists(st.sampled_from(order), max_size=3)) if order else []
    cuts = sorted(draw(st.lists(st.integers(0, len(order)), max_size=8)))
    edges = [0, *cuts, len(order)]
    return [order[low:high] for low, high in pairwise(edges)], count


@given(
    arrived=arrivals(),
    waits=st.lists(st.floats(0, 3), min_size=12, max_size=12),
    elsewhere=st.lists(st.integers(0, 60), min_size=12, max_size=12),
    max_held=st.integers(1, 200),
)
def test_every_seq_comes_out_once_or_is_named_lost(
    arrived: tuple[list[list[int]], int], waits: list[float], elsewhere: list[int], max_held: int
) -> None:
    """This is the promise of the record: exact, or an exact statement of what is missing."""
    batches, _ = arrived
    now_s = 0.0
    limits = replace(LIMITS, max_held=max_held)
    buffer = DecisionBuffer(limits, now_s=now_s)
    runs = []
    for batch, wait_s, held in zip(batches, waits, elsewhere, strict=False):
        now_s += wait_s
        buffer.add([verdict(seq) for seq in batch], now_s=now_s, held_elsewhere=held)
        assert buffer.held <= max(max_held, len(batch))
        runs += buffer.cut(now_s=now_s)
    runs += buffer.cut(now_s=now_s, everything=True)

    shipped = [v.seq for run in runs for v in run.verdicts]
    lost = [seq for loss in buffer.take_losses() for seq in range(loss.first_seq, loss.first_seq + loss.count)]
    last = max((seq for batch in batches for seq in batch), default=-1)
    assert list(range(last + 1)) == sorted(shipped + lost)
    assert shipped == sorted(shipped)
    assert buffer.lost == len(lost)
    assert 0 == buffer.held
    assert last + 1 == buffer.next_seq
    for run in runs:
        assert len(run.verdicts) <= limits.block_decisions
        assert [v.seq for v in run.verdicts] == list(range(run.first_seq, run.first_seq + len(run.verdicts)))
