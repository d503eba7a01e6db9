"""The snippets of docs/howto/identify-callers.md."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "identify-callers.md"


def test_snippets_of_identify_callers_run() -> None:
    """A reader copies them; their own assertions must hold."""
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert 3 == len(snippets)
    for snippet in snippets:
        exec(compile(snippet, str(PAGE), "exec"), {})
