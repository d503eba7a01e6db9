from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aggregator.core.live.cells import CellIndex

PAIRS = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 2) | st.just(2**24 - 1)), max_size=400)


@given(st.lists(PAIRS, min_size=1, max_size=6))
def test_cells_are_numbered_as_a_dict_would(batches: list[list[tuple[int, int]]]) -> None:
    """Two pairs under one number would add one caller's decisions to another's."""
    index, plain = CellIndex(), dict[tuple[int, int], int]()
    for batch in batches:
        callers, scopes = np.array(batch, np.int64).reshape(-1, 2).T
        found = index.ids_of(callers, scopes)
        for pair in batch:
            plain.setdefault(pair, len(plain))

        assert found.size == len(batch)
        by_pair = dict(zip(batch, found.tolist(), strict=True))
        assert len(set(by_pair.values())) == len(by_pair)
        assert [by_pair[pair] for pair in batch] == found.tolist()
        assert index.ids_of(callers, scopes).tolist() == found.tolist()
        assert index.scopes_of(found).tolist() == scopes.tolist()
    assert len(index) == len(plain)
    assert (
        sorted(index.ids_of(*(np.array(side, np.int64) for side in zip(*plain, strict=True))))
        == list(range(len(plain)))
        if plain
        else True
    )
