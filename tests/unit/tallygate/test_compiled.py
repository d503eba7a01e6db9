"""Whether an installation says truthfully which of its modules are compiled."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tallygate import cli, compiled


def test_modules_are_those_that_the_distribution_builds() -> None:
    """A module that is missing here could be missing in an image, and nobody would see it."""
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    built = [module["name"] for module in project["tool"]["setuptools"]["ext-modules"]]
    assert sorted(compiled.MODULES) == sorted(built)


def test_version_says_what_is_compiled_and_what_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The image's build ends on it, and an operator of a slow installation asks for it."""
    assert compiled.main() == 0
    assert capsys.readouterr().out == "compiled: reading verdicts, counting live totals, replaying buckets\n"
    monkeypatch.setitem(compiled.MODULES, "aggregator.no_such_module", "counting")
    assert compiled.main() == 1
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    said = capsys.readouterr().out.splitlines()[-2:]
    assert said == [
        "compiled: reading verdicts, counting live totals, replaying buckets",
        "in Python, slower, as it was built without a C compiler: counting",
    ]
