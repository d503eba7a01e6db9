"""What the pipeline benchmark reads from outside: CPU time of a process, and what the database holds."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from aggregator.store_clickhouse import ClickHouseStore

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """User and system seconds that a process has used so far, all threads; 0 once it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


@dataclass(frozen=True, slots=True)
class Difference:
    """How a table differs from the truth, caller by caller: decisions missing, and decisions too many."""

    lost: int
    doubled: int


def difference(truth: npt.NDArray[np.int64], held: npt.NDArray[np.int64]) -> Difference:
    """Compare counts of the same shape; a shortfall here never cancels a surplus there."""
    return Difference(int(np.clip(truth - held, 0, None).sum()), int(np.clip(held - truth, 0, None).sum()))


class Database:
    """The questions of the benchmark to ClickHouse."""

    def __init__(self, dsn: str) -> None:
        self._store = ClickHouseStore.connect(dsn)

    def close(self) -> None:
        """Release the connection."""
        self._store.close()

    def raw_count(self) -> int:
        """Rows in the exact record, repeated ones included: cheap, for waiting."""
        return self._number("SELECT count() FROM decisions")

    def live_count(self) -> int:
        """Decisions in the live totals."""
        return self._number("SELECT sum(offered) FROM live FINAL WHERE kind = 'usage'")

    def raw_by_caller(self, callers: int) -> npt.NDArray[np.int64]:
        """Admitted and refused by caller number, each identity once; shape (2, callers)."""
        return self._by_caller(
            "SELECT caller, countIf(allowed), countIf(NOT allowed) FROM decisions FINAL GROUP BY caller", callers
        )

    def live_by_caller(self, callers: int) -> npt.NDArray[np.int64]:
        """The same from the live totals."""
        return self._by_caller(
            "SELECT caller, sum(admitted), sum(offered) - sum(admitted)"
            " FROM live FINAL WHERE kind = 'usage' GROUP BY caller",
            callers,
        )

    def live_sealed_us(self, copies: int) -> int | None:
        """Up to when the live totals are complete for every copy, unix µs; None while a copy is missing."""
        return self._oldest(
            "SELECT copy_id, toUnixTimestamp64Micro(max(sealed_at)) FROM live WHERE kind = 'copy' GROUP BY copy_id",
            copies,
        )

    def record_sealed_us(self, copies: int) -> int | None:
        """The same for the exact record."""
        return self._oldest(
            "SELECT copy_id, toUnixTimestamp64Micro(max(sealed_at)) FROM blocks GROUP BY copy_id", copies
        )

    def bytes_per_decision(self) -> float:
        """Bytes on disk of the exact record, by rows that it holds, merged or not."""
        rows = self._store.rows(
            "SELECT sum(bytes_on_disk) / sum(rows) FROM system.parts"
            " WHERE active AND table = 'decisions' AND database = currentDatabase()"
        )
        return float(rows[0][0])

    def _number(self, sql: str) -> int:
        return int(self._store.rows(sql)[0][0])

    def _oldest(self, sql: str, copies: int) -> int | None:
        sealed = [int(at_us) for _, at_us in self._store.rows(sql)]
        return min(sealed) if len(sealed) == copies else None

    def _by_caller(self, sql: str, callers: int) -> npt.NDArray[np.int64]:
        held = np.zeros((2, callers), dtype=np.int64)
        for caller, admitted, refused in self._store.rows(sql):
            held[:, int(caller.rpartition("_")[2])] = (admitted, refused)
        return held
