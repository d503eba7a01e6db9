"""The reference of the settings says what the code does: names, defaults, limits, and who reads what."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from aggregator.config import AggregatorConfig
from dashboard.config import DashboardConfig
from enforcer.config import EnforcerConfig
from enforcer.envoy.config import EnvoyConfig
from enforcer.errors import ConfigError
from enforcer.sidecar.config import SidecarConfig
from stream.config import StreamConfig

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference" / "settings.md"
PACKAGES = ("enforcer", "stream", "aggregator", "dashboard", "tallygate")
READERS: dict[str, tuple[Callable[[Mapping[str, str]], Any], ...]] = {
    "gateway": (EnforcerConfig.from_env, StreamConfig.from_env),
    "Envoy's service": (EnvoyConfig.from_env,),
    "sidecar": (SidecarConfig.from_env,),
    "recorder and worker": (AggregatorConfig.from_env,),
    "pages": (DashboardConfig.from_env,),
}
#: Without it the pages do not start.
NEEDED = {"TALLYGATE_SECRET": "s" * 16}
#: Made at the start, or off.
UNSET = {
    "TALLYGATE_COPY_ID",
    "TALLYGATE_ENVOY_METRICS",
    "TALLYGATE_SECRET",
    "TALLYGATE_SIDECAR_METRICS",
    "TALLYGATE_SIDECAR_TOKEN",
    "TALLYGATE_SPOOL_DIR",
}


@dataclass(frozen=True)
class Setting:
    """One row of the reference."""

    name: str
    kind: str
    default: str
    allowed: str
    read_by: tuple[str, ...]
    text: str

    @property
    def default_value(self) -> str | None:
        """The default as it could be set; None where it is made at the start, or missing."""
        found = re.fullmatch("`(.+)`", self.default)
        return None if found is None else found[1]

    @property
    def limits(self) -> tuple[float, float] | None:
        """The smallest and the largest number that is allowed; None for a setting that is no number."""
        found = re.fullmatch(r"([0-9.,]+) to ([0-9.,]+)", self.allowed)
        return None if found is None else (float(found[1].replace(",", "")), float(found[2].replace(",", "")))

    def read(self, value: str) -> Iterator[Any]:
        """What each of its readers makes of a value."""
        for reader in self.read_by:
            for from_env in READERS[reader]:
                if self.name in _read_by(from_env):
                    yield from_env({**NEEDED, self.name: value})


class _Watched(dict[str, str]):
    """An environment that remembers what it was asked for."""

    def __init__(self) -> None:
        super().__init__(NEEDED)
        self.asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)


def _read_by(from_env: Callable[[Mapping[str, str]], Any]) -> set[str]:
    watched = _Watched()
    from_env(watched)
    return watched.asked


def _settings() -> list[Setting]:
    rows = [line.strip("|").split("|") for line in REFERENCE.read_text().splitlines() if line.startswith("| `TALLY")]
    found = []
    for name, kind, default, allowed, read_by, text in ([cell.strip() for cell in row] for row in rows):
        found.append(Setting(name.strip("`"), kind, default, allowed, tuple(read_by.split(", ")), text))
    return found


SETTINGS = _settings()
NUMBERS = [setting for setting in SETTINGS if setting.limits is not None]


def _shown(number: float) -> str:
    return f"{number:.15g}"


def test_reference_lists_every_setting_of_the_code_once() -> None:
    """A setting that nobody can find is none; one that no code reads is a trap."""
    code = {
        name
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for name in re.findall(r"\bTALLYGATE_[A-Z_]*[A-Z]\b", path.read_text())
    }
    assert sorted(code) == [setting.name for setting in SETTINGS]


@pytest.mark.parametrize("reader", READERS)
def test_reference_says_who_reads_what(reader: str) -> None:
    """Whoever deploys one process must know which settings it needs."""
    asked = {name for from_env in READERS[reader] for name in _read_by(from_env)}
    asked -= {"HOME", "XDG_STATE_HOME"}
    assert asked == {setting.name for setting in SETTINGS if reader in setting.read_by}


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_reference_has_the_default_that_holds(setting: Setting) -> None:
    """To set a default by hand changes nothing."""
    assert setting.kind
    assert setting.text
    value = setting.default_value
    if value is None:
        assert setting.name in UNSET
        return
    for reader in setting.read_by:
        for from_env in READERS[reader]:
            assert from_env(NEEDED) == from_env({**NEEDED, setting.name: value})


@pytest.mark.parametrize("setting", NUMBERS, ids=lambda setting: setting.name)
def test_reference_has_the_limits_that_hold(setting: Setting) -> None:
    """Both ends are taken by every reader; what is beyond is refused by one at least, with the setting's name."""
    assert setting.limits is not None
    low, high = setting.limits
    for value in (low, high):
        assert list(setting.read(_shown(value)))
    step = 1 if setting.kind != "seconds" or low.is_integer() else 0.001
    for value in (low - step, high + 1):
        with pytest.raises(ConfigError, match=f"{setting.name} is "):
            list(setting.read(_shown(value)))


def test_every_number_has_its_limits_in_the_reference() -> None:
    """A setting that takes any number takes the wrong ones too."""
    kinds = {"whole number", "milliseconds", "seconds", "hours", "bytes"}
    assert [setting.name for setting in NUMBERS] == [setting.name for setting in SETTINGS if setting.kind in kinds]


def test_every_choice_of_the_reference_is_taken() -> None:
    """And nothing else."""
    (compression,) = (setting for setting in SETTINGS if setting.name == "TALLYGATE_KAFKA_COMPRESSION")
    choices = re.findall("`([^`]+)`", compression.allowed)
    assert choices == [next(compression.read(choice)).compression for choice in choices]
    with pytest.raises(ConfigError, match=f"allowed: {', '.join(choices)}"):
        list(compression.read("gzip"))
