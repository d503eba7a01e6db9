"""The audit from outside: what the database holds against what the copies decided, decision by decision.

Asks ClickHouse and reads the truth files; trusts no count of a process under test.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.chaos.copy import caller_number
from tests.chaos.pipeline import Audit as Counts
from tests.chaos.truth import Decided, read_truth

_ROWS = (
    "SELECT seq, caller, allowed, cost_tokens FROM decisions FINAL"
    " WHERE copy_id = {copy_id:String} AND epoch = {epoch:UInt64} ORDER BY seq"
)
_LOST = (
    "SELECT JSONExtractUInt(body, 'first_seq'), JSONExtractUInt(body, 'count') FROM control FINAL"
    " WHERE kind = 'decisions_lost' AND copy_id = {copy_id:String} AND epoch = {epoch:UInt64}"
)
_STOPPED = (
    "SELECT count() FROM control FINAL"
    " WHERE kind = 'copy_stopped' AND copy_id = {copy_id:String} AND epoch = {epoch:UInt64}"
)
_RAW_CELLS = (
    "SELECT caller, scope, toUnixTimestamp(toStartOfMinute(at)), count(), countIf(allowed), sum(cost_tokens)"
    " FROM decisions FINAL GROUP BY 1, 2, 3"
)
_SETTLED_CELLS = (
    "SELECT caller, scope, toUnixTimestamp(minute), argMax(offered, place), argMax(admitted, place),"
    " argMax(cost_offered, place)"
    " FROM (SELECT *, (version, stored_at) AS place FROM settled_minutes FINAL) GROUP BY 1, 2, 3"
)
_LIVE_CELLS = (
    "SELECT caller, scope, toUnixTimestamp(minute), sum(offered), sum(admitted), sum(cost_offered)"
    " FROM live FINAL WHERE kind = 'usage' GROUP BY 1, 2, 3"
)

Cells = dict[tuple[str, str, int], tuple[int, int, int]]


@dataclass(slots=True)
class Finding:
    """One epoch of one copy against its truth.

    Attributes:
        decided, recorded: decisions.
        declared: not recorded, and named in a loss record.
        cut: not recorded, at the end of an epoch that did not stop in order: what a killed process had in memory.
        faults: what must not be; empty if all is well.
    """

    copy_id: str
    epoch: int
    decided: int
    recorded: int
    declared: int = 0
    cut: int = 0
    faults: list[str] = field(default_factory=list)


class Audit(Counts):
    """One database, against what its copies noted."""

    def epochs(self, truths: Iterable[Path]) -> list[Finding]:
        """Each epoch against its truth file."""
        return [self._epoch(read_truth(path)) for path in truths]

    def live_differences(self) -> list[str]:
        """Where the live totals say anything else than the record, cell by cell."""
        return _differences(self._cells(_RAW_CELLS), self._cells(_LIVE_CELLS), "live totals")

    def settled_differences(self, *, before_s: int) -> list[str]:
        """The same of the settled totals, for minutes that began before then."""
        raw, settled = self._cells(_RAW_CELLS), self._cells(_SETTLED_CELLS)
        closed = {cell: counts for cell, counts in raw.items() if cell[2] < before_s}
        return _differences(closed, {cell: counts for cell, counts in settled.items() if cell[2] < before_s}, "settled")

    def disagreements(self) -> int:
        """Findings of the settler itself, that live and settled totals are apart."""
        return self._number("SELECT count() FROM disagreements FINAL WHERE gone_at = toDateTime64(0, 6, 'UTC')")

    def _epoch(self, truth: Decided) -> Finding:
        whose = {"copy_id": truth.copy_id, "epoch": truth.epoch}
        rows = self._store.rows(_ROWS, whose)
        found = Finding(truth.copy_id, truth.epoch, truth.count, len(rows))
        seqs = np.array([int(row[0]) for row in rows], np.int64)
        stopped = self._number(_STOPPED, whose) > 0
        _compare(truth, rows, seqs, stopped, found)
        lost = [(int(first), int(count)) for first, count in self._store.rows(_LOST, whose)]
        _explain(truth, seqs, lost, stopped, found)
        return found

    def _cells(self, sql: str) -> Cells:
        return {
            (str(caller), str(scope), int(minute)): (int(offered), int(admitted), int(cost))
            for caller, scope, minute, offered, admitted, cost in self._store.rows(sql)
        }


def _differences(raw: Cells, told: Cells, what: str) -> list[str]:
    return [
        f"{cell}: the record says {raw.get(cell)}, the {what} say {told.get(cell)}"
        for cell in sorted(raw.keys() | told.keys())
        if raw.get(cell) != told.get(cell)
    ]


def _compare(
    truth: Decided, rows: Sequence[tuple[Any, ...]], seqs: npt.NDArray[np.int64], stopped: bool, found: Finding
) -> None:
    """Every row is what the copy decided under that number, and no number stands twice."""
    if not np.array_equal(np.unique(seqs), seqs):
        found.faults.append("a number stands in the record twice")
    known = seqs < len(truth.known)
    known[known] = truth.known[seqs[known]]
    # One that was decided and recorded while its process was killed before it could note it.
    strangers = int(np.count_nonzero(~known))
    if strangers > (0 if stopped else 1):
        found.faults.append(f"{strangers} recorded decisions that the copy never noted")
    said = np.array([(caller_number(row[1]), row[2], row[3]) for row in rows], np.int64).reshape(-1, 3)[known]
    decided = np.stack((truth.caller, truth.allowed.astype(np.int64), truth.cost), axis=1)[seqs[known]]
    wrong = int(np.count_nonzero((said != decided).any(axis=1)))
    if wrong:
        found.faults.append(f"{wrong} recorded decisions say another caller, outcome or cost than was decided")


def _explain(
    truth: Decided, seqs: npt.NDArray[np.int64], lost: Sequence[tuple[int, int]], stopped: bool, found: Finding
) -> None:
    """What is not recorded is named in a loss record, or is the end of an epoch that was killed."""
    missing = truth.known.copy()
    missing[seqs[seqs < len(missing)]] = False
    for first, count in lost:
        found.declared += int(np.count_nonzero(missing[first : first + count]))
        missing[first : first + count] = False
    places = missing.nonzero()[0]
    if not len(places):
        return
    end = int(seqs[-1]) + 1 if len(seqs) else 0
    found.cut = int(np.count_nonzero(places >= end))
    holes = len(places) - found.cut
    if holes:
        found.faults.append(f"{holes} decisions are missing inside the record and nobody says so: {places[:3]} ...")
    if found.cut and stopped:
        found.faults.append(f"{found.cut} decisions are missing at the end, although the copy stopped in order")
