"""The rows of an INSERT as a file that the engine can read: in memory where the system has such files.

The engine's own streaming insert is not used: it reports success when the rows could not be stored at the end.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO


@contextmanager
def readable(pieces: Sequence[bytes]) -> Iterator[str]:
    """A path under which this process can read the pieces, one after the other, while the context lasts.

    Raises:
        OSError: there is no room for them.
    """
    with _file() as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        yield str(file.name) if isinstance(file.name, str) else f"/proc/self/fd/{file.fileno()}"


def _file() -> BinaryIO:
    if hasattr(os, "memfd_create"):
        # A full disk must not matter here: it matters where the engine stores the rows.
        return os.fdopen(os.memfd_create("tallygate-rows"), "wb")
    return tempfile.NamedTemporaryFile(prefix="tallygate-rows-")  # type: ignore[return-value]  # a BinaryIO in all but name
