"""The names of shared buckets: as many as there are, whatever names come in."""

from __future__ import annotations

import pytest

from enforcer.core.anonymous import MOST_BUCKETS, bucket_name, is_shared


@pytest.mark.parametrize("number", [0, 7, 9_999, 10_000, MOST_BUCKETS - 1])
def test_name_of_a_bucket_is_known_as_one(number: int) -> None:
    """What one part names the other must recognise, or a shared bucket would be counted as a caller."""
    assert is_shared(bucket_name("guests", number), "guests")


@pytest.mark.parametrize(
    "name", ["guests/", "guests/1", "guests/123", "guests/123456", "guests/00a1", "guests/٠٠٠١", "guests/0001/x",
             "guests-0001", "guest", "anonymous/0001", "/0001", ""],
)  # fmt: skip
def test_made_up_name_is_no_bucket(name: str) -> None:
    """A name that anyone can make up without end must not pass for one of a bounded number."""
    assert not is_shared(name, "guests")
