"""Blocks of version 3: what was ever written stays readable, and the same content makes the same bytes.

``python -m tests.golden.test_blocks_v3`` writes the files anew; that is right only together with a new version number.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from enforcer.types import Charge, Plan, Reason, Source, Verdict, outcome_code
from stream.contract.block import Totals
from stream.contract.codec import decode_block, encode_block, encode_columns
from tests.golden.test_blocks_v1 import described_block
from tests.verdicts import IDENTITY, basis, verdict, verdicts

FOLDER = Path(__file__).parent / "blocks_v3"
OFFSET_NS = 1_794_991_556_000_000_000


def _block(
    taken: list[Verdict],
    first_seq: int = 0,
    prev_hash: bytes = bytes(16),
    owner_offset_us: int | None = None,
    before: Totals | None = None,
) -> bytes:
    return encode_block(
        taken,
        copy_id="gw-017",
        epoch=IDENTITY.epoch,
        first_seq=first_seq,
        sealed_at_us=1_795_991_560_000_000,
        clock_offset_ns=OFFSET_NS,
        prev_hash=prev_hash,
        owner_offset_us=owner_offset_us,
        before=before or Totals(admitted=first_seq),
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


def _repeated() -> list[Verdict]:
    """Bases that say the same in objects of their own, as those of refusals by one of several limits."""
    spent = outcome_code(Source.LOCAL, Reason.SPENT)
    refused = [verdict(seq, on=basis(f"acct-{seq % 2}", grant_id=0), code=spent, retry_after_ms=9) for seq in range(6)]
    paid = [
        verdict(seq, on=msgspec.structs.replace(basis(f"acct-{seq % 3}"), also=(Charge("(everyone)", "site", 7),)))
        for seq in range(6, 12)
    ]
    return refused + paid


BLOCKS: dict[str, Callable[[], bytes]] = {
    "heartbeat": lambda: _block([], first_seq=42, before=Totals(30, 10, 31), owner_offset_us=-1_250),
    "one": lambda: _block([verdict(0)]),
    "constant": lambda: _block(verdicts(30, first_seq=7), first_seq=7, prev_hash=bytes(range(16))),
    "mixed": lambda: _block(_mixed(), first_seq=1_000, owner_offset_us=-34_560_000_000_000),
    "charges": lambda: _block(_charged()),
    "repeated": lambda: _block(_repeated(), owner_offset_us=12),
}


def _described(data: bytes) -> Any:
    block = decode_block(data)
    return {
        **described_block(data),
        "version": block.version,
        "clock_offset_ns": block.clock_offset_ns,
        "owner_offset_us": block.owner_offset_us,
        "totals": [block.admitted_total, block.refused_total, block.cost_total],
        "bases": len(block.bases.caller),
    }


@pytest.mark.parametrize("name", BLOCKS)
def test_bytes_of_version_3_are_read_as_ever(name: str) -> None:
    """The log keeps what an older gateway wrote, and a dispute may need it a year later."""
    expected = json.loads((FOLDER / f"{name}.json").read_text())
    assert expected == _described((FOLDER / f"{name}.bin").read_bytes())


@pytest.mark.parametrize("name", BLOCKS)
def test_version_3_writes_the_same_bytes(name: str) -> None:
    """Readers of another release are in service: a change of the bytes needs a new version number."""
    assert (FOLDER / f"{name}.bin").read_bytes() == BLOCKS[name]()


@pytest.mark.parametrize("name", BLOCKS)
def test_version_3_is_written_again_from_what_it_says(name: str) -> None:
    """A block that was sealed a year ago must still be provable from its rows, by code that is newer than it."""
    data = (FOLDER / f"{name}.bin").read_bytes()
    assert data == encode_columns(decode_block(data))


def regenerate() -> None:
    """Write all files anew."""
    FOLDER.mkdir(exist_ok=True)
    for name, make in BLOCKS.items():
        data = make()
        (FOLDER / f"{name}.bin").write_bytes(data)
        described = json.dumps(_described(data), ensure_ascii=False, indent=1)
        (FOLDER / f"{name}.json").write_text(described + "\n")


if __name__ == "__main__":
    regenerate()
