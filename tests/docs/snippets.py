"""Pulls the fenced blocks out of a Markdown page, so that tests can run them. Never runs anything by itself."""

from __future__ import annotations

import re
from pathlib import Path

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def snippets(page: Path, language: str) -> list[str]:
    """The blocks of `language` on `page`, in order; a page without any is an error of the test."""
    found = [body for name, body in _BLOCK.findall(page.read_text(encoding="utf-8")) if name == language]
    if not found:
        raise LookupError(f"{page} has no {language} block")
    return found
