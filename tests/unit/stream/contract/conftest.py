"""Both readers of verdicts: what holds for one must hold for the other."""

from __future__ import annotations

import pytest

from stream.contract.reading import COMPILED, IN_PYTHON, Reader
from tests.services import unavailable


@pytest.fixture(params=["compiled", "python"])
def reader(request: pytest.FixtureRequest) -> Reader:
    """One of the two readers; the compiled one only where there was a C compiler."""
    if request.param == "python":
        return IN_PYTHON
    if COMPILED is None:
        unavailable("the distribution was built without a C compiler")
    return COMPILED
