"""The page on Envoy shows what `tests/e2e/envoy` runs, to the letter."""

from __future__ import annotations

import re
from pathlib import Path

from enforcer.policies import load_policy

ROOT = Path(__file__).resolve().parents[2]
_SNIPPET = re.compile(r"<!-- (?P<file>[\w./-]+) -->\n```\w+\n(?P<text>.*?)```", re.DOTALL)


def test_page_shows_the_files_that_are_run() -> None:
    """A reader copies what the page shows."""
    page = (ROOT / "docs" / "ways-in" / "envoy.md").read_text()
    shown = {found["file"]: found["text"] for found in _SNIPPET.finditer(page)}
    assert {"examples/envoy/policy.yaml", "examples/envoy/README.md"} == set(shown)
    for name, text in shown.items():
        assert text in (ROOT / name).read_text()
    assert load_policy(ROOT / "examples/envoy/policy.yaml").envoy is not None


def test_commands_of_the_example_name_its_files_and_addresses() -> None:
    """Ports and files of the commands are those of the configuration that they start."""
    commands = (ROOT / "examples/envoy/README.md").read_text()
    config = (ROOT / "examples/envoy/envoy.yaml").read_text()
    files = re.findall(r"examples/envoy/[\w.]+", commands)
    assert len(files) >= 3
    assert [] == [name for name in files if not (ROOT / name).exists()]
    for port in (*re.findall(r"upstream\.py (\d+)", commands), *re.findall(r"127\.0\.0\.1:(\d+)", commands)):
        assert f"port_value: {port}}}" in config
