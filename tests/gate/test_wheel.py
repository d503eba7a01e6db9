"""What is built and installed is whole: every page, statement and script is in the wheel."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("enforcer", "stream", "aggregator", "dashboard", "tallygate")
_BUILD = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"


def _tracked() -> set[str]:
    names = subprocess.run(
        ["git", "ls-files", *PACKAGES], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.split()
    return {name for name in names if not name.endswith("README.md") and (ROOT / name).exists()}


def test_wheel_holds_every_file_of_the_packages(tmp_path: Path) -> None:
    """A statement or template that is missing breaks only the installations, never the checkout."""
    tree, out = tmp_path / "tree", tmp_path / "out"
    for name in (*_tracked(), "pyproject.toml", "README.md"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tree / name)
    subprocess.run([sys.executable, "-c", _BUILD, str(out)], cwd=tree, check=True, capture_output=True)
    (wheel,) = out.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    assert set() == _tracked() - held
    assert {name.split("/")[0] for name in held if ".dist-info" not in name} == set(PACKAGES)
