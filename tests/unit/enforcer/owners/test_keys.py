"""Key names: one place in a cluster for a bucket, and no way for a caller into another's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enforcer.owners.keys import bucket_key

texts = st.text(max_size=60)


def hash_tag(key: bytes) -> bytes:
    """What a cluster places a key by: between the first { and the next }, if there is anything."""
    opened = key.find(b"{")
    closed = key.find(b"}", opened + 1)
    return key[opened + 1 : closed] if opened >= 0 and closed > opened + 1 else key


@given(caller=texts, limit=texts)
def test_key_is_placed_by_a_digest_and_is_plain_ascii(caller: str, limit: str) -> None:
    """A caller with braces in its name must not choose its node, nor break a console."""
    key = bucket_key(caller, limit)
    assert len(hash_tag(key)) == 32
    assert key.isascii()
    assert all(33 <= byte < 127 for byte in key)
    assert len(key) < 120


@given(one=st.tuples(texts, texts), other=st.tuples(texts, texts))
def test_different_buckets_have_different_keys(one: tuple[str, str], other: tuple[str, str]) -> None:
    """Names are never joined strings."""
    assert (bucket_key(*one) == bucket_key(*other)) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"), [(("a", "bc"), ("ab", "c")), (("", "a"), ("a", "")), (("é", "x"), ("e", "x"))]
)
def test_neighbours_are_told_apart(one: tuple[str, str], other: tuple[str, str]) -> None:
    """The pairs that a careless join would merge."""
    assert bucket_key(*one) != bucket_key(*other)
