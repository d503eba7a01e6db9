"""What the documents show must be what the tree holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_SNIPPET = re.compile(r"<!-- (?P<file>[\w./-]+) -->\n```\w+\n(?P<text>.*?)```", re.DOTALL)
_FILE_NAME = re.compile(r"`((?:enforcer|stream|aggregator|dashboard|tallygate|docs|tests|examples)/[\w./-]*)`")
DOCUMENTS = sorted(
    path
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("[a-z]*/README.md"))
    if ".venv" not in path.parts
)


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_readme_shows_the_example_that_the_tests_run() -> None:
    """A reader copies what the README shows: it must be the file that is tested, to the letter."""
    snippets = {found["file"]: found["text"] for found in _SNIPPET.finditer((ROOT / "README.md").read_text())}
    assert {"examples/asgi/app.py", "examples/asgi/policy.yaml"} <= set(snippets)
    assert {name: (ROOT / name).read_text() for name in snippets} == snippets


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_files_that_a_document_names_exist(document: Path) -> None:
    """A reading guide that rots sends the newcomer to nothing."""
    named = {found.rstrip("/") for found in _FILE_NAME.findall(document.read_text())}
    assert [] == sorted(name for name in named if not (ROOT / name).exists())


def test_readme_commands_are_targets_of_the_makefile() -> None:
    """The two commands are the first thing anyone runs."""
    commands = set(re.findall(r"^make ([a-z-]+)", (ROOT / "README.md").read_text(), re.MULTILINE))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"demo", "test"} <= commands <= targets
