"""What a copy decided, kept outside of its process: one number a decision, in a file that outlives a kill.

The file is sparse and mapped into memory, so that noting a decision is one store. Written after `check` has returned:
of a copy that is killed, the record may hold one decision more than this file, and no more than one.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from enforcer.types import Verdict

#: Decisions that one file has room for; unwritten room costs nothing.
CAPACITY = 1 << 25
_HEAD = struct.Struct("<16xQ64s40x")
_ENTRY_BYTES = 4
_PRESENT, _ALLOWED = 1 << 31, 1 << 30
_COST_AT, _COST_MASK, _CALLER_MASK = 20, 0x3FF, 0xFFFFF


@dataclass(frozen=True, slots=True)
class Decided:
    """The decisions of one epoch by seq; `known` is false where the file says nothing."""

    copy_id: str
    epoch: int
    known: npt.NDArray[np.bool_]
    caller: npt.NDArray[np.int64]
    allowed: npt.NDArray[np.bool_]
    cost: npt.NDArray[np.int64]

    @property
    def count(self) -> int:
        """How many decisions the file knows."""
        return int(np.count_nonzero(self.known))


class TruthFile:
    """The writing side, one a copy's epoch."""

    def __init__(self, path: Path, *, copy_id: str, epoch: int) -> None:
        with path.open("wb") as file:
            file.write(_HEAD.pack(epoch, copy_id.encode()))
            file.truncate(_HEAD.size + CAPACITY * _ENTRY_BYTES)
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._entries = memoryview(self._map)[_HEAD.size :].cast("I")

    def note(self, verdict: Verdict, caller: int) -> None:
        """Keep what was decided for the caller of that number."""
        allowed = _ALLOWED if verdict.allowed else 0
        self._entries[verdict.seq] = _PRESENT | allowed | verdict.cost << _COST_AT | caller


def read_truth(path: Path) -> Decided:
    """Read a file, of a copy that lives or not."""
    with path.open("rb") as file:
        epoch, name = _HEAD.unpack(file.read(_HEAD.size))
    entries = np.memmap(path, np.uint32, "r", offset=_HEAD.size)
    # Chunk by chunk from the start: the end of a sparse file is empty, and need not be read.
    parts: list[npt.NDArray[np.uint32]] = []
    for start in range(0, len(entries), 1 << 16):
        part = np.array(entries[start : start + (1 << 16)])
        if not part.any():
            break
        parts.append(part)
    noted = np.concatenate(parts) if parts else np.zeros(0, np.uint32)
    known = (noted & _PRESENT) != 0
    noted = noted[: int(known.nonzero()[0][-1]) + 1 if known.any() else 0].astype(np.int64)
    return Decided(
        name.rstrip(b"\0").decode(),
        int(epoch),
        (noted & _PRESENT) != 0,
        noted & _CALLER_MASK,
        (noted & _ALLOWED) != 0,
        (noted >> _COST_AT) & _COST_MASK,
    )
