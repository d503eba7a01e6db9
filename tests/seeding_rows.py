"""The rows of every table that follow from a list of decisions: `seeding` writes them.

Shapes are those of the migrations; a row's `_part` keeps one INSERT inside one day.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from enforcer.types import Reason, Source

if TYPE_CHECKING:
    from tests.seeding import SeedDecision, Seeded

PARTITIONS = 4
MINUTE_US = 60_000_000


def epoch_of(copy_id: str, now_us: int) -> int:
    """The epoch of a copy that started a day ago."""
    return ((now_us // 1000 - 86_400_000) << 20) | (sum(copy_id.encode()) % 4096)


def tables(seeded: Seeded, late: set[str], stopped: set[str], awaited: set[str]) -> dict[str, list[dict[str, Any]]]:
    """All rows, by table; `_part` keeps one INSERT inside one day."""
    copies = sorted({c for caller in seeded.seeds for c in caller.copies} | late | stopped)
    return {
        "decisions": [_decision_row(d) for d in seeded.decisions],
        "blocks": _blocks(seeded, copies),
        "grants": _grants(seeded),
        "settlements": _settlements(seeded),
        "live": [
            *(row for row in [*_usage(seeded), *_callers(seeded)] if row["caller"] not in awaited),
            *_marks(seeded, copies, late),
        ],
        "control": [_stop(seeded, copy_id) for copy_id in sorted(stopped)],
    }


def _partition(copy_id: str) -> int:
    return sum(copy_id.encode()) % PARTITIONS


def _decision_row(d: SeedDecision) -> dict[str, Any]:
    return {
        "_part": d.at_us // 86_400_000_000,
        "caller": d.caller, "at": _micros(d.at_us), "copy_id": d.copy_id, "epoch": d.epoch, "seq": d.seq,
        "scope": d.scope, "limit": d.limit, "plan": d.plan,
        "rate_per_s": d.terms[0], "burst": d.terms[1], "per": d.terms[2], "allowed": d.allowed,
        "source": d.source.name.lower(), "reason": d.reason.name.lower(), "cost_tokens": d.cost,
        "remaining_tokens": d.remaining, "retry_after_ms": d.retry_after_ms, "policy_version": d.policy_version,
        "grant_id": d.grant_id, "k": d.k, "log_partition": _partition(d.copy_id), "log_offset": d.seq // 100,
    }  # fmt: skip


def _blocks(seeded: Seeded, copies: Sequence[str]) -> list[dict[str, Any]]:
    rows = []
    for copy_id in copies:
        own = sorted((d for d in seeded.decisions if d.copy_id == copy_id), key=lambda d: d.seq)
        for start in range(0, len(own), 100):
            block = own[start : start + 100]
            rows.append({
                "_part": block[-1].at_us // 86_400_000_000,
                "copy_id": copy_id, "epoch": block[0].epoch, "first_seq": block[0].seq, "decisions": len(block),
                "sealed_at": _micros(block[-1].at_us + 1000), "prev_hash": b"0" * 16, "block_hash": b"1" * 16,
                "log_partition": _partition(copy_id), "log_offset": start // 100,
            })  # fmt: skip
    return rows


def _by_grant(seeded: Seeded) -> dict[tuple[str, int], list[SeedDecision]]:
    grants: dict[tuple[str, int], list[SeedDecision]] = defaultdict(list)
    for d in seeded.decisions:
        if d.grant_id:
            grants[d.caller, d.grant_id].append(d)
    return grants


def _grants(seeded: Seeded) -> list[dict[str, Any]]:
    return [
        {
            "_part": grant_id // 86_400_000_000,
            "caller": caller, "limit": "rate", "grant_id": grant_id, "copy_id": own[0].copy_id,
            "epoch": own[0].epoch, "issued_at": _micros(grant_id), "expires_at": _micros(grant_id + 5_000_000),
            "size_tokens": sum(d.cost for d in own if d.allowed) + 2, "k": own[0].k, "tokens_left": 3.5,
            "policy_version": 41, "log_partition": 0, "log_offset": 1,
        }
        for (caller, grant_id), own in _by_grant(seeded).items()
    ]  # fmt: skip


def _settlements(seeded: Seeded) -> list[dict[str, Any]]:
    return [
        {
            "_part": grant_id // 86_400_000_000,
            "caller": caller, "limit": "rate", "grant_id": grant_id,
            "spent_tokens": sum(d.cost for d in own if d.allowed), "final": True, "cause": "ask",
            "copy_id": own[0].copy_id, "epoch": own[0].epoch, "at": _micros(own[-1].at_us), "log_partition": 0,
            "log_offset": 2,
        }
        for (caller, grant_id), own in _by_grant(seeded).items()
    ]  # fmt: skip


def _usage(seeded: Seeded) -> list[dict[str, Any]]:
    cells: dict[tuple[str, int, str, int], list[SeedDecision]] = defaultdict(list)
    for d in seeded.decisions:
        cells[d.caller, d.at_us // MINUTE_US * 60, d.scope, _partition(d.copy_id)].append(d)
    rows = []
    for (caller, minute_s, scope, partition), own in cells.items():
        minute = _micros(minute_s * 1_000_000)
        refused = Counter(d.reason for d in own if not d.allowed)
        # A row written with an older total first: the newer version must win.
        for version, part in ((len(own), own[: len(own) // 2]), (len(own) + 1, own)):
            rows.append({
                "kind": "usage", "caller": caller, "minute": minute, "scope": scope, "log_partition": partition,
                "version": version, "offered": len(part), "admitted": sum(d.allowed for d in part),
                **{f"refused_{r.name.lower()}": refused[r] for r in Reason if r is not Reason.NONE},
                "degraded": sum(d.source is Source.DEGRADED for d in part),
                "cost_offered": sum(d.cost for d in part), "cost_admitted": sum(d.cost for d in part if d.allowed),
            })  # fmt: skip
    return rows


def _callers(seeded: Seeded) -> list[dict[str, Any]]:
    plans = {caller.name: caller for caller in seeded.seeds}
    reached: dict[tuple[str, int, int], set[str]] = defaultdict(set)
    for d in seeded.decisions:
        reached[d.caller, d.at_us // MINUTE_US * 60, _partition(d.copy_id)].add(d.copy_id)
    return [
        {
            "kind": "caller", "caller": name, "minute": _micros(minute_s * 1_000_000), "log_partition": partition,
            "version": 5,
            "copies": sorted(copies), "plan": plans[name].plan, "rate_per_s": plans[name].rate_per_s,
            "burst": plans[name].burst, "k_counted": len(plans[name].copies),
        }
        for (name, minute_s, partition), copies in reached.items()
    ]  # fmt: skip


def _marks(seeded: Seeded, copies: Sequence[str], late: set[str]) -> list[dict[str, Any]]:
    return [
        {
            "kind": "copy", "copy_id": copy_id, "epoch": epoch_of(copy_id, seeded.now_us), "minute": _micros(0),
            "log_partition": _partition(copy_id), "version": 9, "next_seq": 100,
            "sealed_at": _micros(seeded.now_us - (40_000_000 if copy_id in late else 1_500_000 + 100_000 * number)),
        }
        for number, copy_id in enumerate(copies)
    ]  # fmt: skip


def _stop(seeded: Seeded, copy_id: str) -> dict[str, Any]:
    return {
        "kind": "copy_stopped", "copy_id": copy_id, "epoch": epoch_of(copy_id, seeded.now_us),
        "at": _micros(seeded.now_us - 30_000_000), "body": json.dumps({"reason": "closed"}), "log_partition": 0,
        "log_offset": 1,
    }  # fmt: skip


def _micros(at_us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_us)
