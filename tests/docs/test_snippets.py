"""The helper by which pages are run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.snippets import snippets


def test_snippets_come_in_order_and_never_silently_empty(tmp_path: Path) -> None:
    """A page whose blocks were not found would pass for one whose blocks all ran."""
    page = tmp_path / "page.md"
    page.write_text("x\n```python\na = 1\n```\n```sh\nls\n```\n```python\nb = 2\n```\n")
    assert ["a = 1\n", "b = 2\n"] == snippets(page, "python")
    with pytest.raises(LookupError, match="no yaml block"):
        snippets(page, "yaml")
