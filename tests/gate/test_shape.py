"""The shape of the house: sizes, names, READMEs and the lean base install. Rules that no linter has."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("enforcer", "stream", "aggregator", "dashboard", "tallygate")
CODE = (*PACKAGES, "tests", "benchmarks", "examples")
MOST_LINES_IN_A_FILE = 300
MOST_LINES_IN_A_FUNCTION = 40


def _python_files(*folders: str) -> list[Path]:
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    assert files, f"no Python files under {folders}"
    return files


def test_files_are_short_enough_to_hold_in_mind() -> None:
    """A file nobody can hold is where the next fault hides."""
    long = {
        str(path.relative_to(ROOT)): lines
        for path in _python_files(*CODE)
        if (lines := len(path.read_text().splitlines())) > MOST_LINES_IN_A_FILE
    }
    assert {} == long


def test_functions_are_short() -> None:
    """A function does one thing; more than a screen of it does two."""
    long: dict[str, int] = {}
    for path in _python_files(*PACKAGES):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[1] if ast.get_docstring(node) is not None and len(node.body) > 1 else node.body[0]
                lines = (node.end_lineno or first.lineno) - first.lineno + 1
                if lines > MOST_LINES_IN_A_FUNCTION:
                    long[f"{path.relative_to(ROOT)}:{node.name}"] = lines
    assert {} == long


def test_every_module_says_what_it_is_for() -> None:
    """The first line of a file is what a newcomer searches by."""
    silent = [
        str(path.relative_to(ROOT))
        for path in _python_files(*PACKAGES)
        if not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert [] == silent


@pytest.mark.parametrize("package", ["enforcer", "stream", "aggregator", "dashboard"])
def test_every_package_has_its_readme(package: str) -> None:
    """What it owns, what always holds, what it is not."""
    text = (ROOT / package / "README.md").read_text()
    assert len(text.splitlines()) >= 10


@pytest.mark.parametrize("package", ["enforcer", "stream", "tallygate"])
def test_exported_names_are_sorted_and_exist(package: str) -> None:
    """A name in __all__ that is not there breaks users on import, an unsorted list hides it."""
    module = importlib.import_module(package)
    names = list(module.__all__)
    assert sorted(names) == names
    assert [] == [name for name in names if not hasattr(module, name)]


def test_tallygate_re_exports_exactly_the_enforcer() -> None:
    """One surface: what `import tallygate` offers is what `enforcer` offers."""
    assert list(importlib.import_module("enforcer").__all__) == list(importlib.import_module("tallygate").__all__)


def test_importing_the_enforcer_loads_no_broker_and_no_database() -> None:
    """A gateway pays for what it uses: the base install must import without the extras."""
    heavy = ("confluent_kafka", "faust", "clickhouse_connect", "numpy", "pyarrow", "starlette", "chdb", "uvicorn")
    code = f"import sys, enforcer, tallygate; tallygate.Limiter; print([m for m in {heavy!r} if m in sys.modules])"
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "[]" == seen.stdout.strip()


def test_base_install_names_only_what_a_gateway_needs() -> None:
    """The lean install is a promise of the README."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[\[><=~! ]", requirement)[0] for requirement in project["dependencies"]}
    assert {"msgspec", "pydantic", "pyyaml", "redis"} == names


@pytest.mark.parametrize("name", ["enforcer", "stream", "services", "dev"])
def test_locked_requirements_are_hashed_and_name_no_host(name: str) -> None:
    """What is installed is what was reviewed, from wherever the reader's own index is."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    pins = re.findall(r"^[a-z0-9][^=\s]*==\S+", text, re.MULTILINE)
    assert len(pins) >= 4
    assert text.count("--hash=sha256:") >= len(pins)
    assert re.search(r"https?://|--(extra-)?index-url|--find-links", text) is None


def test_no_machine_path_in_the_tree() -> None:
    """A path of one machine works on one machine."""
    tracked = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True, cwd=ROOT).stdout.split()
    own = Path(__file__).relative_to(ROOT).as_posix()
    pattern = re.compile("/" + "work/|/" + "root/")
    texts = [
        name for name in tracked if Path(name).suffix in {".py", ".md", ".sh", ".yml", ".toml", ".txt", ".sql", ".lua"}
    ]
    found = [name for name in texts if name != own and pattern.search((ROOT / name).read_text())]
    assert [] == found
