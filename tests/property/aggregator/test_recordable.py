"""Whatever a reader takes from the log can be made into rows of every table: one message must not stop the record."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from aggregator.core.record.pending import Pending
from enforcer.types import Basis, Plan, Standing, Terms, Verdict
from stream.contract.codec import UnencodableBlock, encode_block
from stream.contract.control import WouldRefuse, encode_control
from stream.contract.facts import CostRow, GrantRow
from stream.contract.layout import AT_US_MAX, I64_MAX, U32_MAX, U64_MAX
from stream.contract.topics import CONTROL, DECISIONS, GRANTS
from tests.recordable import batches_of, taken
from tests.recordblocks import MIDNIGHT_US
from tests.verdicts import runs

_COUNTS = st.sampled_from([0, 1, U32_MAX, U32_MAX + 1, I64_MAX]) | st.integers(0, I64_MAX)
_EPOCHS = st.sampled_from([0, I64_MAX, I64_MAX + 1, U64_MAX, U64_MAX + 1])
_TIMES = st.sampled_from([0, MIDNIGHT_US, 4_102_444_799_999_999, 4_102_444_800_000_000, AT_US_MAX])
_U32S = st.sampled_from([0, U32_MAX])
_NAMES = st.text(st.characters(codec="utf-8"), max_size=5)
_GRANTS = st.builds(
    GrantRow, _NAMES, _NAMES, _U32S, _COUNTS, _COUNTS, _U32S, _TIMES, _TIMES, st.sampled_from([-1e18, -0.0, 1e18])
)
_SETTLED = st.tuples(
    _NAMES, _NAMES, st.sampled_from(["a/1", "\N{SNOWMAN}/18446744073709551615", "a/18446744073709551616", "", "/"]),
    _COUNTS, _COUNTS, st.booleans(), st.integers(0, 5), _TIMES, st.sampled_from([-(2**63), 0, I64_MAX]),
)  # fmt: skip
_COSTS = st.builds(CostRow, _NAMES, _NAMES, _COUNTS, _COUNTS, _COUNTS, _TIMES)


def _rows(pending: Pending) -> Counter[str]:
    """How many rows each table is given."""
    rows: Counter[str] = Counter()
    for batch in batches_of(pending):
        rows[batch.table] += batch.rows.num_rows
    return rows


def _held_to(run: list[Verdict], plan: Plan) -> list[Verdict]:
    """The run under one plan, within an hour."""
    terms = [Terms(one.basis.limit, plan, one.basis.policy_version) for one in run]
    bases = [
        Basis(Standing(one.basis.caller, its), one.basis.scope, one.basis.grant_id, one.basis.k, one.basis.also)
        for one, its in zip(run, terms, strict=True)
    ]
    return [
        msgspec.structs.replace(one, basis=basis, at_ns=one.at_ns % 10**12)
        for one, basis in zip(run, bases, strict=True)
    ]


@given(
    run=runs(max_size=20),
    plan=st.builds(Plan, _NAMES, st.sampled_from([1e-9, 1e9]), _COUNTS),
    sealed_at_us=_TIMES,
    epoch=st.integers(0, U64_MAX),
    owner=st.none() | st.integers(-9, 9),
)
def test_any_block_that_is_taken_has_rows_in_every_table(
    run: list[Verdict], plan: Plan, sealed_at_us: int, epoch: int, owner: int | None
) -> None:
    """A burst that no table can hold once stopped the record of everybody for ever."""
    near = _held_to(run, plan)
    whose: dict[str, Any] = {"copy_id": "gw", "epoch": epoch, "first_seq": run[0].seq if run else 0}
    try:
        data = encode_block(
            near, **whose, sealed_at_us=sealed_at_us, clock_offset_ns=MIDNIGHT_US * 1000, owner_offset_us=owner
        )
    except UnencodableBlock:
        return  # no copy can send it
    pending, reasons = taken([(DECISIONS.name, data)])
    assert 1 == len(pending.blocks) + len(reasons)
    rows = _rows(pending)
    if reasons:
        assert {"dead_letters": 1, "recorded": 1} == rows
    else:
        assert len(run) == rows["decisions"] == rows["conflicts"]
        assert (1, 1, bool(run)) == (rows["blocks"], rows["recorded"], "terms" in rows)


@given(
    epoch=st.sampled_from([0, I64_MAX + 1, U64_MAX]),
    grants=st.lists(_GRANTS, max_size=2),
    settled=st.lists(_SETTLED, max_size=2),
    costs=st.lists(_COSTS, max_size=2),
)
def test_any_facts_that_are_taken_have_rows(
    epoch: int, grants: list[GrantRow], settled: list[tuple[Any, ...]], costs: list[CostRow]
) -> None:
    """The same for grants, settlements and costs, as bytes that nobody's encoder has looked at."""
    value = msgspec.msgpack.encode(["tallygate.facts", 2, "gw", epoch, grants, settled, costs])
    pending, reasons = taken([(GRANTS.name, value)])
    rows = _rows(pending)
    if reasons:
        assert {"dead_letters": 1, "recorded": 1} == rows
    else:
        assert [len(grants), len(settled), len(costs)] == [rows[of] for of in ("grants", "settlements", "cost_changes")]


@given(epoch=_EPOCHS, at_us=_TIMES, count=_COUNTS, name=_NAMES, unknown=st.binary(max_size=4))
def test_any_control_event_that_is_taken_has_a_row(
    epoch: int, at_us: int, count: int, name: str, unknown: bytes
) -> None:
    """Its text is kept as it came: bytes that are no text, in a field that nobody knows, once stopped the recorder."""
    event = WouldRefuse(
        copy_id="gw", epoch=epoch, at_us=at_us, caller=name, scope=name, limit=name, policy_version=count,
        requests=count, cost=count,
    )  # fmt: skip
    value = encode_control(event)
    values = [value, value[:-1] + b',"later":"' + unknown.replace(b'"', b"").replace(b"\\", b"") + b'"}']
    pending, reasons = taken([(CONTROL.name, one) for one in values])
    rows = _rows(pending)
    assert (2 - len(reasons), len(reasons)) == (rows["control"], rows["dead_letters"])
