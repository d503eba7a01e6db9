"""Which callers were erased, as the recorder knows it: asked at most once a second, and kept while nothing is new.

Never deletes anything: of whom a flush may have written what was erased it leaves word, and the settler takes it out.
What an erasure means for a flush is in `core/record/erased.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from aggregator.core.record.erased import Erased, Erasure
from aggregator.erasure.again import note
from aggregator.erasure.known import erased
from aggregator.store import Store

_EVERY_S = 1.0


class Erasures:
    """Used by one thread.

    Args:
        monotonic_s: a clock that never goes back.
    """

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._asked_s: float | None = None
        self._known = Erased()
        self._told: set[tuple[Erasure, str]] = set()

    def known(self, store: Store) -> Erased:
        """What must not be recorded again.

        Raises:
            StoreUnavailable: the database did not answer; ask again.
        """
        if self._asked_s is None or self._monotonic_s() - self._asked_s >= _EVERY_S:
            self._ask(store)
        return self._known

    def note_late(
        self, store: Store, known: Erased, callers: Callable[[], Collection[str]], left_out: Collection[str]
    ) -> None:
        """After a flush was written: leave word of whom something may be on record that was erased.

        Args:
            store: the database.
            known: what was known before anything of the flush was written: what was begun since came too late for it.
            callers: of whom anything of the flush was written; asked for where it matters.
            left_out: of whom something was left out of it. It may be a repetition of one that was ended half way, when
                nobody had heard of the erasure; told once.

        Raises:
            StoreUnavailable: the database did not answer; say it again.
        """
        self._ask(store)
        came = Erased(self._known.erasures - known.erasures)
        late = {(found, name) for name in callers() if (found := came.of(name)) is not None} if came.erasures else set()
        late |= {(found, name) for name in left_out if (found := known.of(name)) is not None} - self._told
        note(store, late)
        self._told |= late

    def _ask(self, store: Store) -> None:
        found = erased(store)
        # The names that were looked up stay remembered while there is no new erasure.
        if found.erasures != self._known.erasures:
            self._known = found
        self._asked_s = self._monotonic_s()
