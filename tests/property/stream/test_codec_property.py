"""Any run of verdicts comes back from the log as it was, whatever its values."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enforcer.types import Verdict
from stream.contract import layout
from stream.contract.block import Bases, DecisionBlock, Totals
from stream.contract.codec import BlockEncoder, UnencodableBlock, decode_block, encode_block, encode_columns
from stream.contract.control import CopyStopped, DecisionsLost, DegradeChanged, decode_control, encode_control
from stream.contract.facts import decode_facts, encode_facts
from stream.contract.reading import IN_PYTHON
from tests.verdicts import IDENTITY, expected_rows, grant, rows, runs, settlement


@given(taken=runs(), offset_ns=st.integers(0, 4 * 10**18))
def test_any_run_round_trips(taken: list[Verdict], offset_ns: int) -> None:
    """Widths, bases and dictionaries are chosen per block: every choice must be undone exactly."""
    first_seq = taken[0].seq if taken else 17
    times_us = [(v.at_ns + offset_ns) // 1000 for v in taken]
    gaps = [after - before for before, after in pairwise(times_us)]
    whose: dict[str, Any] = {"copy_id": IDENTITY.copy_id, "epoch": IDENTITY.epoch}
    if max(map(abs, gaps), default=0) > layout.GAP_US_MAX:
        with pytest.raises(UnencodableBlock, match="gap_us"):
            encode_block(taken, **whose, first_seq=first_seq, sealed_at_us=1, clock_offset_ns=offset_ns)
        return
    data = encode_block(taken, **whose, first_seq=first_seq, sealed_at_us=1, clock_offset_ns=offset_ns)
    in_python = BlockEncoder(IN_PYTHON).encode(
        taken, **whose, first_seq=first_seq, sealed_at_us=1, clock_offset_ns=offset_ns
    )
    assert data == in_python, "a block does not depend on how the verdicts were read"
    block = decode_block(data)
    assert first_seq == block.first_seq
    assert expected_rows(taken, clock_offset_ns=offset_ns) == rows(block)
    said = [
        (v.basis.caller, v.basis.scope, v.basis.standing.terms, v.basis.grant_id, v.basis.k, v.basis.also)
        for v in taken
    ]
    assert len(set(said)) == len(block.bases.caller), "bases that say the same are one"


@given(
    taken=runs(),
    owner_offset_us=st.none() | st.integers(-layout.AT_US_MAX, layout.AT_US_MAX),
    before=st.builds(Totals, st.integers(0, 9), st.integers(0, 9), st.integers(0, 2**63)),
    prev_hash=st.binary(min_size=16, max_size=16),
    order=st.randoms(use_true_random=False),
)
def test_any_block_is_written_again_from_what_it_says(
    taken: list[Verdict], owner_offset_us: int | None, before: Totals, prev_hash: bytes, order: random.Random
) -> None:
    """What a table gives back has neither the lists nor the bases of the block, and must still prove its hash."""
    first_seq = 100
    run = [
        msgspec.structs.replace(v, seq=first_seq + place, at_ns=10**15 + v.at_ns % 10**12)
        for place, v in enumerate(taken)
    ]
    data = encode_block(
        run,
        copy_id=IDENTITY.copy_id,
        epoch=IDENTITY.epoch,
        first_seq=first_seq,
        sealed_at_us=1_795_991_556_929_797,
        clock_offset_ns=10**18 + 7,
        prev_hash=prev_hash,
        owner_offset_us=owner_offset_us,
        before=before,
    )
    block = decode_block(data)
    assert data == encode_columns(block)
    assert data == encode_columns(_as_rows(block, order))
    admitted = [v for v in run if v.allowed]
    assert (before + Totals(len(admitted), len(run) - len(admitted), sum(v.cost for v in admitted))) == Totals(
        block.admitted_total or 0, block.refused_total or 0, block.cost_total or 0
    )
    assert (owner_offset_us, prev_hash, 10**18 + 7) == (
        block.owner_offset_us,
        block.prev_hash,
        block.clock_offset_ns,
    )


def _as_rows(block: DecisionBlock, order: random.Random) -> DecisionBlock:
    """The block with a basis for every decision, in any order, and lists that name everything as often."""
    places = list(range(block.count))
    order.shuffle(places)
    old, picked = block.bases, block.basis[places]
    number = np.arange(block.count, dtype=np.uint32)
    by_basis = defaultdict(list)
    for other in old.also:
        by_basis[other.basis].append(other)
    bases = Bases(
        callers=[old.callers[at] for at in old.caller[picked]],
        scopes=[old.scopes[at] for at in old.scope[picked]],
        limits=[old.limits[at] for at in old.limit[picked]],
        plans=[old.plans[at] for at in old.plan[picked]],
        caller=number,
        scope=number,
        limit=number,
        plan=number,
        policy_version=old.policy_version[picked],
        grant_id=old.grant_id[picked],
        k=old.k[picked],
        also=[replace(other, basis=at) for at, basis in enumerate(picked.tolist()) for other in by_basis[basis]],
    )
    return replace(block, bases=bases, basis=np.argsort(places).astype(np.uint32))


@given(callers=st.lists(st.text(st.characters(codec="utf-8"), max_size=30), max_size=20))
def test_any_facts_round_trip(callers: list[str]) -> None:
    """The ledger is computed from them."""
    grants = [grant(caller, grant_id=number) for number, caller in enumerate(callers)]
    settlements = [settlement(caller, grant_id=number) for number, caller in enumerate(callers)]
    block = decode_facts(encode_facts(IDENTITY, grants, settlements))
    assert (IDENTITY.copy_id, IDENTITY.epoch) == (block.copy_id, block.epoch)
    assert grants == block.grants
    assert settlements == block.settlements


@given(
    number=st.integers(0, 2**63 - 1),
    text=st.text(st.characters(codec="utf-8")),
    at_us=st.integers(0, layout.AT_US_MAX),
    entered=st.booleans(),
)
def test_any_control_event_round_trips(number: int, text: str, at_us: int, entered: bool) -> None:
    """A loss record that cannot be read back is a silent loss."""
    whose: dict[str, Any] = {"copy_id": IDENTITY.copy_id, "epoch": IDENTITY.epoch, "at_us": at_us}
    for event in (
        CopyStopped(**whose, next_seq=number),
        DegradeChanged(**whose, owner=text, entered=entered, cause=text),
        DecisionsLost(**whose, first_seq=number, count=max(number, 1), cause=text),
    ):
        assert event == decode_control(encode_control(event))
