"""The sidecar's settings: all faults at once, and times that add up to the bound that is stated."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from enforcer.errors import ConfigError
from enforcer.sidecar.config import SidecarConfig
from enforcer.sidecar.listening import allow_files
from enforcer.sidecar.serve import serve


def test_settings_name_every_fault_at_once() -> None:
    """Whoever mends one should not meet the next."""
    wrong = {
        "TALLYGATE_SIDECAR": "nowhere",
        "TALLYGATE_SIDECAR_WORKERS": "2",
        "TALLYGATE_SIDECAR_CONNECTIONS": "0",
        "TALLYGATE_SIDECAR_STOP_MS": "soon",
        "TALLYGATE_SIDECAR_METRICS": "127.0.0.1:65535",
        "TALLYGATE_SIDECAR_TOKEN": "secret",
    }
    with pytest.raises(ConfigError) as caught:
        SidecarConfig.from_env(wrong)
    said = str(caught.value)
    for name in wrong.keys() - {"TALLYGATE_SIDECAR_WORKERS"}:
        assert f"{name} is " in said
    assert "'secret'" not in said
    assert SidecarConfig.from_env({**wrong, **dict.fromkeys(wrong, "")}) == SidecarConfig()


def test_what_was_given_on_the_command_line_is_called_so() -> None:
    """Whoever typed an option looks in vain for a setting; and both ways have the same bounds."""
    with pytest.raises(ConfigError) as caught:
        SidecarConfig.from_env({}, listen="8320", workers=300)
    assert (
        str(caught.value)
        == "--listen is '8320'; allowed: host:port, or unix:/path; --workers is 300; allowed: 1 to 256"
    )
    with pytest.raises(ConfigError, match=r"^--workers is 0; allowed: 1 to 256$"):
        SidecarConfig.from_env({}, workers=0)


def test_a_sidecar_without_a_policy_names_the_setting_and_its_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first start of all is in a directory without one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TALLYGATE_POLICY", raising=False)
    monkeypatch.setattr("enforcer.sidecar.serve.obey_at_once", lambda: None)
    monkeypatch.setattr("enforcer.sidecar.serve.configure_log", lambda: None)
    assert serve() == 2
    said = capsys.readouterr().err
    assert f"the policy file that TALLYGATE_POLICY names does not exist: {tmp_path / 'policy.yaml'} " in said
    assert "when it is not set: policy.yaml in the working directory" in said


@pytest.mark.parametrize("stop_ms", [3_000, 5_000, 600_000])
def test_times_of_an_end_fit_into_its_bound(stop_ms: int) -> None:
    """The record may take a second and a half beyond its own time, and that belongs to the bound too."""
    config = SidecarConfig(stop_ms=stop_ms)
    assert config.answer_s > 0
    assert config.close_s > 0
    assert config.answer_s + config.close_s + 1.5 + 0.3 < stop_ms / 1e3


def test_more_connections_than_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the machine's limit nobody is answered, and the log fills with the same error."""
    put: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (300, 1_200))
    monkeypatch.setattr(resource, "setrlimit", lambda _which, limits: put.append(limits))
    with pytest.raises(ConfigError, match=r"TALLYGATE_SIDECAR_CONNECTIONS is 1000, .* may open 1200 files"):
        allow_files(1_000)
    allow_files(10)
    assert put == []
    allow_files(500)
    assert put == [(756, 1_200)]
