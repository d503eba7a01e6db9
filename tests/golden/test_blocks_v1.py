"""Bytes that version 1 wrote stay readable, and version 1 goes on writing the same bytes.

``python -m tests.golden.test_blocks_v1`` writes the files anew; that is right only together with a new version number.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from enforcer.types import Plan, Reason, Source, Verdict, outcome_code
from stream.contract.codec import decode_block, encode_block
from stream.contract.control import (
    CopyStarted,
    CopyStopped,
    DecisionsLost,
    DegradeChanged,
    FactsLost,
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


BLOCKS: dict[str, Callable[[], bytes]] = {
    "heartbeat": lambda: _block([], first_seq=42),
    "one": lambda: _block([verdict(0)]),
    "constant": lambda: _block(verdicts(30, first_seq=7), first_seq=7, prev_hash=bytes(range(16))),
    "mixed": lambda: _block(_mixed(), first_seq=1_000),
}
FACTS: dict[str, Callable[[], bytes]] = {
    "facts": lambda: encode_facts(IDENTITY, [grant("acct-1"), grant("é", grant_id=5)], [settlement("acct-1")])
}
CONTROL: dict[str, Callable[[], bytes]] = {
    "copy_started": lambda: encode_control(CopyStarted(**_WHOSE)),
    "copy_stopped": lambda: encode_control(CopyStopped(**_WHOSE, next_seq=5)),
    "degrade_changed": lambda: encode_control(
        DegradeChanged(**_WHOSE, owner="10.0.0.1:6379", entered=True, cause="no answer in 50 ms")
    ),
    "decisions_lost": lambda: encode_control(DecisionsLost(**_WHOSE, first_seq=100, count=30, cause="full")),
    "facts_lost": lambda: encode_control(FactsLost(**_WHOSE, total=3)),
}


def _described(name: str, data: bytes) -> Any:
    """What a file holds, as JSON."""
    if name in CONTROL:
        return msgspec.to_builtins(decode_control(data))
    if name in FACTS:
        block = decode_facts(data)
        return {
            "copy_id": block.copy_id,
            "epoch": block.epoch,
            "grants": msgspec.to_builtins(block.grants),
            "settlements": msgspec.to_builtins(block.settlements),
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
