"""Usage messages that were ever written stay readable, and the same content makes the same bytes.

``python -m tests.golden.test_usage_v1`` writes the file anew; that is right only together with a new version number.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stream.contract.usage import USAGE_COUNTS, UsageBlock, UsageMinute, decode_usage, encode_usage

FILE = Path(__file__).parent / "usage_v1" / "usage.bin"


def _block() -> UsageBlock:
    counts = np.zeros((3, len(USAGE_COUNTS)), np.int64)
    counts[:, 0] = [1, 70_000, 2**40]
    counts[:, 1] = [1, 69_000, 2**40]
    counts[:, -1] = [2**62, 5, 0]
    first = UsageMinute(
        minute=29_928_170,
        callers=["acct-1", "anonymous/0417", "zürich"],
        copies=[f"gw-{number}" for number in range(9)],
        version=np.array([12_345, 12_345, 12_345]),
        k_counted=np.array([1, 9, 240]),
        counts=counts,
        reached=np.array([[1, 0], [255, 1], [128, 0]], np.uint8),
    )
    second = UsageMinute(
        29_928_171, ["acct-1"], [], np.array([12_346]), np.array([0]), counts[:1], np.zeros((1, 0), np.uint8)
    )
    return UsageBlock("5b1a3cd4-0000-4000-8000-000000000001", 3, [first, second])


def test_usage_is_written_in_the_bytes_of_version_1() -> None:
    """Stages of two releases run side by side during an upgrade."""
    assert encode_usage(_block()) == FILE.read_bytes()


def test_usage_of_version_1_is_read() -> None:
    """What stands on the topic outlives the process that wrote it."""
    found, expected = decode_usage(FILE.read_bytes()), _block()

    assert (found.table_id, found.source_partition) == (expected.table_id, expected.source_partition)
    for one, other in zip(found.minutes, expected.minutes, strict=True):
        assert (one.minute, one.callers, one.copies) == (other.minute, list(other.callers), list(other.copies))
        for name in ("version", "k_counted", "counts", "reached"):
            assert np.array_equal(getattr(one, name), getattr(other, name)), name


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_bytes(encode_usage(_block()))
