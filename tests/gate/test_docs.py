"""What the documents show must be what the tree holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_SNIPPET = re.compile(r"<!-- (?P<file>[\w./-]+) -->\n```\w+\n(?P<text>.*?)```", re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:|mailto:)(?P<file>[^)#\s]*)(?:#(?P<part>[^)\s]*))?\)")
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
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


def _links(document: Path) -> list[tuple[Path, str]]:
    """The files that a page links to, and the parts of them; a link within the page is to itself."""
    text = _FENCED.sub("", document.read_text())
    return [
        ((document.parent / found["file"]).resolve() if found["file"] else document, found["part"] or "")
        for found in _LINK.finditer(text)
    ]


def _parts(document: Path) -> set[str]:
    """What its headings can be linked to by, as GitHub names them."""
    headings = re.findall(r"^#+ (.*)$", _FENCED.sub("", document.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_links_of_a_document_lead_somewhere(document: Path) -> None:
    """Who is sent to a page at night must find it, and the part that is meant."""
    links = _links(document)
    assert [] == sorted(_name(file) for file, _ in links if not file.exists())
    assert [] == [f"{file.name}#{part}" for file, part in links if part and part not in _parts(file)]


def test_every_page_is_reached_from_the_index() -> None:
    """A page that nothing leads to is read by nobody, and contradicted by the next one on its subject."""
    index = ROOT / "docs" / "README.md"
    reached, to_read = {index}, [index]
    while to_read:
        pages = {file for file, _ in _links(to_read.pop()) if file.suffix == ".md" and ROOT / "docs" in file.parents}
        to_read += pages - reached
        reached |= pages
    assert [] == sorted(_name(page) for page in set(ROOT.glob("docs/**/*.md")) - reached)


def test_index_names_every_page_but_single_decisions() -> None:
    """It is the one place to look a page up."""
    index = ROOT / "docs" / "README.md"
    named = {file for file, _ in _links(index)}
    single = set(ROOT.glob("docs/decisions/0*.md"))
    assert [] == sorted(_name(page) for page in set(ROOT.glob("docs/**/*.md")) - named - single - {index})


def test_readme_commands_are_targets_of_the_makefile() -> None:
    """The two commands are the first thing anyone runs."""
    commands = set(re.findall(r"^make ([a-z-]+)", (ROOT / "README.md").read_text(), re.MULTILINE))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"demo", "test"} <= commands <= targets
