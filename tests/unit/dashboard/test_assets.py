"""What the browser is given: vendored files as released, little script, nothing inline, nobody else's address."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

import dashboard

HERE = Path(dashboard.__file__).parent
STATIC = HERE / "static"
TEMPLATES = sorted((HERE / "templates").glob("*.html"))
MOST_SCRIPT_BYTES = 120_000


def test_vendored_files_are_the_released_ones() -> None:
    """A vendored library that someone edited, or something edited, is found here."""
    vendor = STATIC / "vendor"
    manifest = json.loads((vendor / "manifest.json").read_text())
    stated = {name: digest for library in manifest.values() for name, digest in library["files"].items()}
    found = {
        path.relative_to(vendor).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in vendor.rglob("*")
        if path.is_file() and path.name != "manifest.json"
    }
    assert found == stated
    assert f"v{manifest['uplot']['version']})" in (vendor / "uplot/uPlot.iife.min.js").read_text()[:200]
    assert "uplot/LICENSE" in stated


def test_all_script_together_is_small() -> None:
    """A page must be quick on a bad line: 120 kB of script in all, before compression."""
    assert MOST_SCRIPT_BYTES >= sum(path.stat().st_size for path in STATIC.rglob("*.js"))


@pytest.mark.parametrize(
    "path", [*TEMPLATES, *STATIC.glob("js/*.js"), STATIC / "tallygate.css"], ids=lambda path: path.name
)
def test_nothing_is_asked_of_anyone_else(path: Path) -> None:
    """A font or a script from elsewhere tells elsewhere who our customers are."""
    text = path.read_text().replace("https://YOUR-SERVICE/", "")
    assert [] == re.findall(r"https?://[^\s\"')]+|@import|url\(", text)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_templates_hold_no_inline_script_or_style(path: Path) -> None:
    """The content policy would refuse it, and without the policy it would be a hole."""
    text = path.read_text()
    assert re.search(r"\sstyle=|<style|\son[a-z]+=|javascript:|\|\s*safe", text) is None
    assert [] == [tag for tag in re.findall(r"<script[^>]*>", text) if "src=" not in tag]


def test_sizes_in_the_style_sheet_are_of_the_one_scale() -> None:
    """One design language: a sixth size of type is the beginning of the end of it."""
    text = (STATIC / "tallygate.css").read_text()
    sizes = {int(size) for size in re.findall(r"font-size: (\d+)px", text)} | {
        int(size) for size in re.findall(r"font: (\d+)px", text)
    }
    assert sizes <= {12, 14, 16, 20, 28}


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ink", ["ink", "muted", "refused-ink", "degraded-ink", "link"])
@pytest.mark.parametrize("ground", ["paper", "surface"])
def test_text_stands_out_from_its_ground(theme: int, ink: str, ground: str) -> None:
    """AA: 4.5 to 1 for text, in light and in dark."""
    text = (STATIC / "tallygate.css").read_text()
    palettes = re.findall(r":root \{(.*?)\}", text, re.DOTALL)
    colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", palettes[theme]))
    light, dark = sorted((_luminance(colours[ink]), _luminance(colours[ground])), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 4.5
