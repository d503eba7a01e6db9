"""The snippets of docs/ways-in/clients.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "ways-in" / "clients.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_page_has_its_snippets() -> None:
    """None found, none run: the next test would pass on an empty page."""
    assert 3 == len(SNIPPETS)


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_snippets_of_clients_run(snippet: str) -> None:
    """A reader copies them; their own assertions must hold."""
    exec(compile(snippet, str(PAGE), "exec"), {})
