"""How far the record reaches: "Data until 12:03:20; 1 of 4 servers late", from what each copy says of itself.

Pure. A copy states every few seconds how far its record is complete, also while it is idle, so silence means something:
the copy is late (its record will come), it stopped (it said so), or it is gone (too long silent to wait for).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from dashboard import formats
from dashboard.rows import CallerRecord, CopyMark, Counts, Losses, Settled

#: Three missed heartbeats: a healthy copy speaks every 5 s and is read within another 3 s.
LATE_AFTER_S = 18
#: A copy that has been silent for this long without saying that it stopped no longer holds the page back.
GONE_AFTER_S = 600
#: A minute is settled half a minute after its end, and within another minute where all is well.
SETTLED_LATE_AFTER_S = 120
#: From here on it is said in hours how late it is.
_HOURS_FROM_S = 7_200


@dataclass(frozen=True, slots=True)
class Completeness:
    """How far the picture is complete.

    Attributes:
        until_us: every copy that is not late has delivered all decisions up to here; None if no copy is known.
        whole_until_us: the same with the late copies counted in: what is older can no longer change.
        copies: how many copies are expected to speak.
        late: names of those that are late, the longest silent first.
        lost: decisions that were made and not recorded, by the copies' own statements.
        gaps: decisions that are missing in the record besides, and nobody said why.
        settled: which minute is the first that is not settled.
        settling_late_s: for how long that minute has been over, where that is longer than it should be; else 0.
    """

    until_us: int | None
    whole_until_us: int | None
    copies: int
    late: tuple[str, ...]
    lost: int
    gaps: int
    settled: Settled
    settling_late_s: int


def completeness(marks: Sequence[CopyMark], *, now_us: int, losses: Losses, settled: Settled) -> Completeness:
    """Judge the copies' marks; only the newest epoch of each copy counts, and none that stopped or is gone.

    What is missing and what copies say they lost was held against each other life by life, where the numbers are known:
    what one copy lost explains nothing of another's.
    """
    rest = (losses.lost, losses.silent, settled, _settling_late_s(settled, now_us))
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
        return Completeness(known, whole, 0, (), *rest)
    late = sorted((m for m in expected if m.sealed_at_us < late_us), key=lambda m: (m.sealed_at_us, m.copy_id))
    on_time = [mark.sealed_at_us for mark in expected if mark.sealed_at_us >= late_us]
    until_us = min(on_time) if on_time else max(mark.sealed_at_us for mark in expected)
    whole_until_us = min(mark.sealed_at_us for mark in expected)
    return Completeness(until_us, whole_until_us, len(expected), tuple(mark.copy_id for mark in late), *rest)


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
    line += f"; {_settled_words(state, zone, now_us)}"
    if state.lost or state.gaps:
        line += f"; {formats.plural(state.lost + state.gaps, 'decision', 'decisions')} not recorded"
    if state.gaps:
        line += f", {formats.count(state.gaps)} of them for no known reason"
    if arriving:
        line += "; totals are still arriving"
    return line + "."


def _settling_late_s(settled: Settled, now_us: int) -> int:
    if settled.from_us is None:
        return 0
    over_s = (now_us - settled.from_us) // 1_000_000 - 60
    return over_s if over_s > SETTLED_LATE_AFTER_S else 0


def _settled_words(state: Completeness, zone: ZoneInfo, now_us: int) -> str:
    """Up to when totals are final, and by how much that is later than it should be."""
    settled = state.settled
    if not settled.ever:
        return "not settled yet"
    if settled.from_us is None:
        return "all of it settled"
    words = f"settled up to {formats.minute_of(settled.from_us, zone, now_us=now_us)}"
    if state.settling_late_s:
        seconds, unit = (60, "min") if state.settling_late_s < _HOURS_FROM_S else (3_600, "h")
        words += f", {formats.count(state.settling_late_s // seconds)}{formats.NBSP}{unit} behind"
    return words
