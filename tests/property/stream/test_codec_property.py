"""Any run of verdicts comes back from the log as it was, whatever its values."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enforcer.types import Verdict
from stream.contract import layout
from stream.contract.codec import BlockEncoder, UnencodableBlock, decode_block, encode_block
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
