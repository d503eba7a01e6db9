"""Bytes that were ever written stay readable, and the same content makes the same bytes.

``python -m tests.golden.test_blocks_v1`` writes the files of facts and control events anew; that is right only together
with a new version number. Blocks are of versions that nobody writes any more: their files stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from enforcer.sink import CostChanged, GrantSettled
from stream.contract.codec import UnencodableBlock, decode_block, encode_columns
from stream.contract.control import (
    Anchor,
    CopyFound,
    CopyStarted,
    CopyStopped,
    DecisionsLost,
    DegradeChanged,
    FactsLost,
    PolicyChanged,
    SoftLimitReached,
    WouldRefuse,
    decode_control,
    encode_control,
)
from stream.contract.facts import decode_facts, encode_facts
from tests.verdicts import IDENTITY, grant, rows, settlement

FOLDER = Path(__file__).parent / "blocks_v1"
_WHOSE: dict[str, Any] = {"copy_id": "gw-017", "epoch": IDENTITY.epoch, "at_us": 1_795_991_556_929_797}


def _refunded() -> GrantSettled:
    fact = settlement("acct-1")
    return msgspec.structs.replace(fact, settlement=msgspec.structs.replace(fact.settlement, adjusted=-3))


def _cost() -> CostChanged:
    return CostChanged("acct-1", "POST /chat", 4, 12, 3, 1_795_991_556_929_797)


#: Of versions 1 and 2, which nobody writes any more.
BLOCKS = ("heartbeat", "one", "constant", "mixed", "charges_v2")
FACTS: dict[str, Callable[[], bytes]] = {
    "facts": lambda: encode_facts(IDENTITY, [grant("acct-1"), grant("é", grant_id=5)], [settlement("acct-1")]),
    "facts_v2": lambda: encode_facts(IDENTITY, [grant("acct-1")], [_refunded()], [_cost()]),
}
CONTROL: dict[str, Callable[[], bytes]] = {
    "copy_started": lambda: encode_control(CopyStarted(**_WHOSE)),
    "copy_stopped": lambda: encode_control(CopyStopped(**_WHOSE, next_seq=5)),
    "copy_found": lambda: encode_control(CopyFound(**_WHOSE, by=IDENTITY.epoch + 1, next_seq=77)),
    "copy_found_empty": lambda: encode_control(CopyFound(**_WHOSE, by=IDENTITY.epoch + 1, next_seq=None)),
    "anchor": lambda: encode_control(Anchor(**_WHOSE, next_seq=2_000, head=bytes(range(16)).hex(), blocks=3)),
    "degrade_changed": lambda: encode_control(
        DegradeChanged(**_WHOSE, owner="10.0.0.1:6379", entered=True, cause="no answer in 50 ms")
    ),
    "decisions_lost": lambda: encode_control(DecisionsLost(**_WHOSE, first_seq=100, count=30, cause="full")),
    "facts_lost": lambda: encode_control(FactsLost(**_WHOSE, total=3)),
    "soft_limit_reached": lambda: encode_control(
        SoftLimitReached(**_WHOSE, subject="acct-1", limit="day", policy_version=7, used_share=0.8125, k=4)
    ),
    "would_refuse": lambda: encode_control(
        WouldRefuse(**_WHOSE, caller="é", scope="GET /", limit="new", policy_version=7, requests=30, cost=31)
    ),
    "policy_changed": lambda: encode_control(
        PolicyChanged(**_WHOSE, policy_version=7, digest="0" * 32, source="policy.yaml", faults=("line 3: plans",))
    ),
}


def _described(name: str, data: bytes) -> Any:
    """What a file holds, as JSON."""
    if name in CONTROL:
        return json.loads(msgspec.json.encode(decode_control(data)))
    if name in FACTS:
        block = decode_facts(data)
        return {
            "copy_id": block.copy_id,
            "epoch": block.epoch,
            "grants": msgspec.to_builtins(block.grants),
            "settlements": [_settlement(fact) for fact in block.settlements],
            **({"costs": msgspec.to_builtins(block.costs)} if block.costs else {}),
        }
    return described_block(data)


def described_block(data: bytes) -> dict[str, Any]:
    """What every version of a block says, as JSON."""
    decoded = decode_block(data)
    return {
        "copy_id": decoded.copy_id,
        "epoch": decoded.epoch,
        "first_seq": decoded.first_seq,
        "count": decoded.count,
        "sealed_at_us": decoded.sealed_at_us,
        "prev_hash": decoded.prev_hash.hex(),
        "block_hash": decoded.block_hash.hex(),
        "decisions": json.loads(json.dumps(rows(decoded))),
    }


def _settlement(fact: GrantSettled) -> dict[str, Any]:
    """Without what the log has no field for, and without an adjustment that there is not."""
    described: dict[str, Any] = msgspec.to_builtins(fact)
    told = fact.settlement.adjusted
    described["settlement"] = {name: described["settlement"][name] for name in ("grant_id", "spent", "final", "cause")}
    return {**described, **({"adjusted": told} if told else {})}


WRITTEN = {**FACTS, **CONTROL}


@pytest.mark.parametrize("name", [*BLOCKS, *WRITTEN])
def test_bytes_of_version_1_are_read_as_ever(name: str) -> None:
    """The log keeps what an older gateway wrote, and a dispute may need it a year later."""
    expected = json.loads((FOLDER / f"{name}.json").read_text())
    assert expected == _described(name, (FOLDER / f"{name}.bin").read_bytes())


@pytest.mark.parametrize("name", BLOCKS)
def test_block_of_an_older_version_cannot_be_written_again(name: str) -> None:
    """Its bytes do not follow from what it says: whoever compares them must be told, not given other bytes."""
    block = decode_block((FOLDER / f"{name}.bin").read_bytes())
    assert (None, None, None, None) == (
        block.owner_offset_us,
        block.admitted_total,
        block.refused_total,
        block.cost_total,
    )
    assert (2 if name == "charges_v2" else 1) == block.version
    with pytest.raises(UnencodableBlock, match=f"version is {block.version}; only"):
        encode_columns(block)


@pytest.mark.parametrize("name", WRITTEN)
def test_version_1_writes_the_same_bytes(name: str) -> None:
    """Readers of another release are in service: a change of the bytes needs a new version number."""
    assert (FOLDER / f"{name}.bin").read_bytes() == WRITTEN[name]()


def regenerate() -> None:
    """Write the files of facts and control events anew."""
    FOLDER.mkdir(exist_ok=True)
    for name, make in WRITTEN.items():
        data = make()
        (FOLDER / f"{name}.bin").write_bytes(data)
        described = json.dumps(_described(name, data), ensure_ascii=False, indent=1)
        (FOLDER / f"{name}.json").write_text(described + "\n")


if __name__ == "__main__":
    regenerate()
