"""What the settler knows of erasures: whose decisions it does not count, and what it may have written too late.

It may have read decisions before a caller was erased and write their totals after the erasure was done. So it looks
again after it has written, once for each erasure, at its start and once an hour, and deletes what it finds; whoever was
killed in between, another settler finds it. Never touches what the caller did since.
"""

from __future__ import annotations

import logging

from aggregator.core.record.erased import Erased, Erasure
from aggregator.erasure.again import in_totals, noted, remove
from aggregator.erasure.known import Stated, stated
from aggregator.store import Store, StoreRefused

_DAY_US = 86_400_000_000
#: So often everything is looked through, for erasures that were done so lately.
_EVERY_US, _RECENT_US = 3_600_000_000, 8 * _DAY_US


class Erasures:
    """Used by one thread.

    Args:
        log: where is told what was found, without a name.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._known = Erased()
        self._open: set[int] = set()
        self._told: set[int] = set()
        self._unfinished: set[int] = set()
        self._failed: set[int] = set()
        self._looked_us: int | None = None

    def known(self, store: Store, now_us: int) -> Erased:
        """What is not to be counted; asked before anything is read.

        Raises:
            StoreUnavailable, StoreRefused: the database could not be asked.
        """
        found = self._asked(store)
        if self._looked_us is None or not 0 <= now_us - self._looked_us < _EVERY_US:
            self._open.update(_number(one) for one in found if now_us - one.stated_us < _RECENT_US)
            self._looked_us = now_us
        return self._known

    def look(self, store: Store, now_us: int) -> list[Erasure]:
        """After everything was written: delete what came too late.

        Returns erasures that are done, each once, and those of which something was deleted: their callers may have gone
        on in the minute in which they end, which is to be counted again. What cannot be deleted is told once, and tried
        again in the next round.

        Raises:
            StoreUnavailable, StoreRefused: a repetition finds the rest.
        """
        found = self._asked(store)
        done = [one for one in found if one.state == "done" and _number(one) in self._open]
        pairs = [*noted(store, found), *in_totals(store, [one.erasure for one in done])]
        changed = {erasure for erasure, caller in dict.fromkeys(pairs) if self._takes_out(store, erasure, caller)}
        # Others are looked for again in the next round.
        self._open.difference_update(_number(one) for one in done if _number(one) not in self._unfinished)
        new = [one for one in done if _number(one) not in self._told and now_us - one.stated_us < _RECENT_US]
        self._told.update(map(_number, new))
        return list(changed.union(one.erasure for one in new))

    def _asked(self, store: Store) -> list[Stated]:
        """All erasures; those that are new, or not done, are open."""
        found = stated(store)
        erasures = frozenset(one.erasure for one in found)
        new = erasures - self._known.erasures if self._looked_us is not None else frozenset()
        self._open.update(_number(one) for one in found if one.state != "done" or one.erasure in new)
        if erasures != self._known.erasures:
            self._known = Erased(erasures)
        return found

    def _takes_out(self, store: Store, erasure: Erasure, caller: str) -> bool:
        """Delete what is on record again of a caller's past; whether there was anything, and it could be tried."""
        number = erasure.erasure_id
        try:
            rows, is_gone = remove(store, caller, erasure, lambda _: None)
        except StoreRefused:
            self._unfinished.add(number)
            if number not in self._failed:
                self._failed.add(number)
                # What the engine says may quote a row, and so a name.
                self._log.warning(
                    "erasure %016x: rows had come back and could not be deleted, which is tried again each round "
                    "(system.mutations says why)", number,
                )  # fmt: skip
            return False
        self._failed.discard(number)
        (self._unfinished.discard if is_gone else self._unfinished.add)(number)
        if rows:
            said = ", ".join(f"{table} {count:,}" for table, count in rows.items())
            how = "deleted" if is_gone else "not all could be deleted yet"
            self._log.warning("erasure %016x: rows had come back, %s: %s", number, how, said)
        return bool(rows)


def _number(one: Stated) -> int:
    return one.erasure.erasure_id
