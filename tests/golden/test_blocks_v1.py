"""Bytes that were ever written stay readable, and the same content makes the same bytes.

``python -m tests.golden.test_blocks_v1`` writes the files anew; that is right only together with a new version number.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from enforcer.sink import CostChanged, GrantSettled
from enforcer.types import Charge, Plan, Reason, Source, Verdict, outcome_code
from stream.contract.codec import decode_block, encode_block
from stream.contract.control import (
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
from tests.verdicts import IDENTITY, basis, grant, rows, settlement, verdict, verdicts

FOLDER = Path(__file__).parent / "blocks_v1"
OFFSET_NS = 1_794_991_556_000_000_000
_WHOSE: dict[str, Any] = {"copy_id": "gw-017", "epoch": IDENTITY.epoch, "at_us": 1_795_991_556_929_797}


def _block(taken: list[Verdict], first_seq: int = 0, prev_hash: bytes = bytes(16)) -> bytes:
    return encode_block(
        taken,
        copy_id="gw-017",
        epoch=IDENTITY.epoch,
        first_seq=first_seq,
        sealed_at_us=1_795_991_560_000_000,
        clock_offset_ns=OFFSET_NS,
        prev_hash=prev_hash,
    )


def _mixed() -> list[Verdict]:
    """Refusals of every reason, every source, several callers, wide numbers, a clock that steps back a little."""
    plans = [Plan("free", 1.5, 3), Plan("groß", 20_000.0, 2**40)]
    codes = [outcome_code(source, reason) for source in Source for reason in Reason]
    found = []
    for seq, code in enumerate(codes, start=1_000):
        number = seq % 5
        found.append(
            verdict(
                seq,
                on=basis(f"acct-{number} é", f"POST /v{number % 2}", plan=plans[number % 2], grant_id=10**15 + number),
                at_ns=10**15 + seq * 1_700_000 - (9_000_000 if seq == 1_010 else 0),
                code=code,
                cost=1 + number * 70_000,
                remaining=seq * 1_001 - 1_005_000,
                retry_after_ms=0 if code & 15 == 0 else -1 if code & 15 == 2 else seq * 977,
            )
        )
    return found


def _charged() -> list[Verdict]:
    """Decisions that several limits admitted, and one that a calendar quota refused."""
    plain, quota = basis(), basis(limit="day", plan=Plan("standard", 1.25, 108_000))
    both = msgspec.structs.replace(plain, also=(Charge("acct-1", "day", 10**15), Charge("(everyone)", "site", 0)))
    terms = msgspec.structs.replace(quota.standing.terms, per="day Europe/Berlin")
    daily = msgspec.structs.replace(quota, standing=msgspec.structs.replace(quota.standing, terms=terms), grant_id=0)
    return [
        verdict(0, on=both),
        verdict(1, on=plain),
        verdict(2, on=daily, code=outcome_code(Source.LOCAL, Reason.SPENT), retry_after_ms=3_600_000),
    ]


def _refunded() -> GrantSettled:
    fact = settlement("acct-1")
    return msgspec.structs.replace(fact, settlement=msgspec.structs.replace(fact.settlement, adjusted=-3))


def _cost() -> CostChanged:
    return CostChanged("acct-1", "POST /chat", 4, 12, 3, 1_795_991_556_929_797)


BLOCKS: dict[str, Callable[[], bytes]] = {
    "heartbeat": lambda: _block([], first_seq=42),
    "one": lambda: _block([verdict(0)]),
    "constant": lambda: _block(verdicts(30, first_seq=7), first_seq=7, prev_hash=bytes(range(16))),
    "mixed": lambda: _block(_mixed(), first_seq=1_000),
    "charges_v2": lambda: _block(_charged()),
}
FACTS: dict[str, Callable[[], bytes]] = {
    "facts": lambda: encode_facts(IDENTITY, [grant("acct-1"), grant("é", grant_id=5)], [settlement("acct-1")]),
    "facts_v2": lambda: encode_facts(IDENTITY, [grant("acct-1")], [_refunded()], [_cost()]),
}
CONTROL: dict[str, Callable[[], bytes]] = {
    "copy_started": lambda: encode_control(CopyStarted(**_WHOSE)),
    "copy_stopped": lambda: encode_control(CopyStopped(**_WHOSE, next_seq=5)),
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


ALL = {**BLOCKS, **FACTS, **CONTROL}


@pytest.mark.parametrize("name", ALL)
def test_bytes_of_version_1_are_read_as_ever(name: str) -> None:
    """The log keeps what an older gateway wrote, and a dispute may need it a year later."""
    expected = json.loads((FOLDER / f"{name}.json").read_text())
    assert expected == _described(name, (FOLDER / f"{name}.bin").read_bytes())


@pytest.mark.parametrize("name", ALL)
def test_version_1_writes_the_same_bytes(name: str) -> None:
    """Readers of another release are in service: a change of the bytes needs a new version number."""
    assert (FOLDER / f"{name}.bin").read_bytes() == ALL[name]()


def regenerate() -> None:
    """Write all files anew."""
    FOLDER.mkdir(exist_ok=True)
    for name, make in ALL.items():
        data = make()
        (FOLDER / f"{name}.bin").write_bytes(data)
        described = json.dumps(_described(name, data), ensure_ascii=False, indent=1)
        (FOLDER / f"{name}.json").write_text(described + "\n")


if __name__ == "__main__":
    regenerate()
