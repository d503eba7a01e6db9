from __future__ import annotations

import numpy as np

from aggregator.core.live.returns import early_returns
from stream.contract.block import Int64s

MS = 1_000


def _early(groups: list[int], at_ms: list[int], retry_ms: list[int], told: Int64s | None = None) -> list[int]:
    known = np.zeros((max(groups) + 1, 2), np.int64) if told is None else told
    found = early_returns(
        np.array(groups, np.int64), np.array(at_ms, np.int64) * MS, np.array(retry_ms, np.int32), known
    )
    return sorted(found.tolist())


def test_early_returns_are_those_before_the_last_retry_after() -> None:
    """A caller that does as it is told is no storm, one that hammers is: the last refusal is what it was told."""
    assert _early([0] * 5, [0, 500, 1_000, 1_200, 3_000], [1_000, 0, 0, 1_500, 0]) == [1]
    assert _early([0] * 4, [0, 100, 600, 700], [1_000, 500, 0, 0]) == [1]


def test_early_returns_do_not_mix_callers() -> None:
    """One caller's refusal says nothing to another, however their requests are interleaved."""
    assert _early([0, 1, 0, 1, 2], [0, 1, 2, 3, 4], [1_000, 0, 0, 0, 0]) == [2]


def test_early_returns_know_what_was_told_in_blocks_before() -> None:
    """A client in a loop comes once a block: within one block nobody would see it."""
    told = np.zeros((2, 2), np.int64)
    assert _early([0, 1], [0, 0], [2_000, 0], told) == []
    assert told.tolist() == [[0, 2_000 * MS], [0, 0]]

    assert _early([0, 1], [1_500, 1_500], [0, 0], told) == [0]
    assert _early([0, 1], [2_000, 2_000], [0, 0], told) == []


def test_early_returns_leave_out_what_was_decided_before_the_refusal() -> None:
    """Copies' blocks overtake each other in the log: a decision from before the refusal is no return."""
    told = np.array([[5_000 * MS, 9_000 * MS]])
    assert _early([0, 0], [4_999, 5_001], [0, 0], told) == [1]


def test_early_returns_hold_nothing_against_whom_no_wait_helps() -> None:
    """Without a Retry-After there is nothing to come back before."""
    assert _early([0, 0], [0, 1], [-1, -1]) == []
