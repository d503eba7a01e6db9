"""What the settler heeds of erasures that were done while it was away."""

from __future__ import annotations

import logging
from typing import cast

import pytest

from aggregator.core.record.erased import Erasure, who_hash
from aggregator.erasure.known import Stated
from aggregator.settler import erasures
from aggregator.settler.erasures import Erasures
from aggregator.store import Store

_NOW_US, _DAY_US = 1_796_036_400_000_000, 86_400_000_000
_SALT = bytes(16)
_ERASURE = Erasure(8, _NOW_US - 10 * _DAY_US, _SALT, who_hash(_SALT, "acme"))


@pytest.mark.parametrize(("days", "found"), [(0.5, [_ERASURE]), (3.0, [_ERASURE]), (9.0, [])])
def test_erasure_that_was_done_while_no_settler_ran_is_heeded_as_long_as_its_rows_are_looked_for(
    days: float, found: list[Erasure], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a caller did in the minute in which its erasure ends would else be in no total, for good."""
    done = Stated(_ERASURE, "done", "x", "y", _NOW_US - 10 * _DAY_US, {}, int(_NOW_US - days * _DAY_US))
    monkeypatch.setattr(erasures, "stated", lambda _store: [done])
    monkeypatch.setattr(erasures, "noted", lambda _store, _known: [])
    monkeypatch.setattr(erasures, "in_totals", lambda _store, _erasures: [])
    heeded, store = Erasures(logging.getLogger("test")), cast(Store, None)

    heeded.known(store, _NOW_US)

    assert found == heeded.look(store, _NOW_US)
    assert [] == heeded.look(store, _NOW_US), "each once"
