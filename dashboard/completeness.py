"""How far the record reaches: "Data until 12:03:20; 1 of 4 servers late", from what each copy says of itself.

Pure. A copy states every few seconds how far its record is complete, also while it is idle, so silence means something:
the copy is late (its record will come), it stopped (it said so), or it is gone (too long silent to wait for).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from dashboard import formats
from dashboard.rows import CallerRecord, CopyMark, Counts

#: Three missed heartbeats: a healthy copy speaks every 5 s and is read within another 3 s.
LATE_AFTER_S = 18
#: A copy that has been silent for this long without saying that it stopped no longer holds the page back.
GONE_AFTER_S = 600


@dataclass(frozen=True, slots=True)
class Completeness:
    """How far the picture is complete.

    Attributes:
        until_us: every copy that is not late has delivered all decisions up to here; None if no copy is known.
        whole_until_us: the same with the late copies counted in: what is older can no longer change.
        copies: how many copies are expected to speak.
        late: names of those that are late, the longest silent first.
        lost: decisions that were made and not recorded, by the copies' own statements.
    """

    until_us: int | None
    whole_until_us: int | None
    copies: int
    late: tuple[str, ...]
    lost: int


def completeness(marks: Sequence[CopyMark], *, now_us: int, lost: int) -> Completeness:
    """Judge the copies' marks; only the newest epoch of each copy counts, and none that stopped or is gone."""
    newest: dict[str, CopyMark] = {}
    for mark in marks:
        if mark.copy_id not in newest or newest[mark.copy_id].epoch < mark.epoch:
            newest[mark.copy_id] = mark
    gone_us, late_us = now_us - GONE_AFTER_S * 1_000_000, now_us - LATE_AFTER_S * 1_000_000
    expected = [mark for mark in newest.values() if not mark.stopped and mark.sealed_at_us >= gone_us]
    if not expected:
        known = max((mark.sealed_at_us for mark in newest.values()), default=None)
        # Copies that all said they stopped owe nothing more; ones that fell silent may.
        whole = now_us if known is not None and all(mark.stopped for mark in newest.values()) else known
        return Completeness(known, whole, 0, (), lost)
    late = sorted((m for m in expected if m.sealed_at_us < late_us), key=lambda m: (m.sealed_at_us, m.copy_id))
    on_time = [mark.sealed_at_us for mark in expected if mark.sealed_at_us >= late_us]
    until_us = min(on_time) if on_time else max(mark.sealed_at_us for mark in expected)
    whole_until_us = min(mark.sealed_at_us for mark in expected)
    return Completeness(until_us, whole_until_us, len(expected), tuple(mark.copy_id for mark in late), lost)


def totals_arriving(record: CallerRecord, totals: Counts, state: Completeness, *, now_us: int) -> bool:
    """Whether the totals are behind the exact record, so that no sentence may be made of them.

    They come by two ways of different length, and a second or two between them is nothing to speak of. What cannot be:
    no totals at all of a caller that the record knows; fewer refused than the record has held for some time; or fresh
    refusals of a fleet of which no server has reported its totals.
    """
    refusals = record.refusals
    settled_us = now_us - LATE_AFTER_S * 1_000_000
    if totals.offered == 0 and (record.decided or refusals):
        return True
    if totals.refused < sum(refusal.at_us < settled_us for refusal in refusals):
        return True
    return state.until_us is None and bool(refusals) and refusals[0].at_us > now_us - GONE_AFTER_S * 1_000_000


def completeness_line(state: Completeness, zone: ZoneInfo, *, now_us: int, arriving: bool = False) -> str:
    """The line at the foot of every page; `arriving` while the totals are behind the exact record."""
    if state.until_us is None:
        if arriving:
            return "No server has reported its totals yet; they are still arriving."
        return "No server has reported in the last two days."
    line = f"Data until {formats.moment(state.until_us, zone, now_us=now_us)}"
    if state.late:
        line += f"; {len(state.late)} of {formats.plural(state.copies, 'server', 'servers')} late"
    elif state.copies:
        line += f"; {formats.plural(state.copies, 'server', 'servers')} reporting"
    else:
        line += "; no server has reported since"
    if state.lost:
        line += f"; {formats.plural(state.lost, 'decision', 'decisions')} not recorded"
    if arriving:
        line += "; totals are still arriving"
    return line + "."
