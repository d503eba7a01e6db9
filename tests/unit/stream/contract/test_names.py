"""What stands behind a block's bases: found by identity, listed by value, and never another one's."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from enforcer.types import Basis, Plan, Standing, Terms, Verdict
from stream.contract.codec import BlockEncoder, UnencodableBlock, decode_block
from stream.contract.reading import Reader
from tests.verdicts import IDENTITY, STANDARD, expected_rows, rows, verdict

OFFSET_NS = 1_794_991_556_000_000_000
TERMS = Terms("rate", STANDARD, 1)
Encode = Callable[[list[Verdict]], bytes]


@pytest.fixture
def encode(reader: Reader) -> Encode:
    """One encoder, as a copy has it."""
    encoder = BlockEncoder(reader)

    def one(taken: list[Verdict]) -> bytes:
        return encoder.encode(
            taken,
            copy_id=IDENTITY.copy_id,
            epoch=IDENTITY.epoch,
            first_seq=taken[0].seq,
            sealed_at_us=1_795_991_560_000_000,
            clock_offset_ns=OFFSET_NS,
        )

    return one


def block_of(bases: list[Basis]) -> list[Verdict]:
    """One decision on each basis."""
    return [verdict(seq, on=basis) for seq, basis in enumerate(bases)]


def assert_comes_back(encode: Encode, bases: list[Basis]) -> None:
    taken = block_of(bases)
    assert expected_rows(taken, clock_offset_ns=OFFSET_NS) == rows(decode_block(encode(taken)))


def many(count: int) -> list[Basis]:
    """Bases of several callers, scopes, limits, plans, policy versions, grants and k."""
    terms = [
        Terms(f"limit-{number % 2}", Plan(f"plan-{number % 3}", 1.0, 10 + number), 7 + number % 2)
        for number in range(6)
    ]
    standings = [Standing(f"acct-{number}", terms[number % 6]) for number in range(count // 5 + 1)]
    scopes = [f"GET /{number}" for number in range(9)]
    return [Basis(standings[n // 5], scopes[n * 7 % 9], 10**15 + n % 40, n % 300) for n in range(count)]


def test_block_after_block_comes_back(encode: Encode) -> None:
    """A name taken from the wrong place would bill one customer for another."""
    chance = random.Random(3)
    bases = many(3_000)
    for size in (1, 2, 7, 100, 1_000, 3_000, 5):
        assert_comes_back(encode, chance.choices(bases[:size], k=2 * size))


def test_blocks_do_not_depend_on_those_before_them(encode: Encode) -> None:
    """A block is read alone, and its hash must be the same from any encoder."""
    first, second = block_of(many(500)), block_of(many(700)[::-3])
    assert encode(second) == [encode(first), encode(second)][1]


def test_two_limiters_may_share_an_encoder(encode: Encode) -> None:
    """The same caller under two policies is listed once, under both."""
    theirs = Terms("rate", Plan("other", 1.0, 2), 9)
    bases = [Basis(Standing("acme", terms), "GET /", 0, 0) for terms in (TERMS, theirs)]
    assert_comes_back(encode, bases)
    block = decode_block(encode(block_of(bases)))
    assert (["acme"], ["rate"], 2) == (block.bases.callers, block.bases.limits, len(block.bases.plans))


def test_equal_texts_in_different_objects_are_listed_once(encode: Encode) -> None:
    """A caller that was forgotten and came back, or a scope of a limiter that shares no texts."""
    bases = [
        Basis(
            Standing("".join(["acct-", str(n % 2)]), Terms("".join(["ra", "te"]), STANDARD, 1)), f"GET /{n % 3}", n, 1
        )
        for n in range(30)
    ]
    assert_comes_back(encode, bases)
    block = decode_block(encode(block_of(bases)))
    assert (2, 3, 1) == (len(block.bases.callers), len(block.bases.scopes), len(block.bases.limits))


@pytest.mark.parametrize("version", [-1, 2**32, 2**70])
def test_terms_that_have_no_room_spoil_only_their_own_block(encode: Encode, version: int) -> None:
    """The copy names that decision as lost and goes on with the same encoder."""
    bad = Basis(Standing("acme", Terms("rate", STANDARD, version)), "GET /", 1, 1)
    with pytest.raises(UnencodableBlock, match=f"policy_version is {version}"):
        encode(block_of([*many(20), bad]))
    assert_comes_back(encode, many(20))
