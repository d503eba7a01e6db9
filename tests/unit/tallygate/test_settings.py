"""The settings of a process with several parts: all that are wrong are told at once, whichever part reads them."""

from __future__ import annotations

import logging

import pytest

from tallygate import envoy, sidecar


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Owner and log, both wrong."""
    given = {"TALLYGATE_OWNER_URL": "http://u:secret@h", "TALLYGATE_KAFKA": "nowhere"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    return given


def test_a_sidecar_names_the_faults_of_all_its_parts(wrong: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever mends the owner's address should not meet Kafka's at the next start."""
    assert sidecar.run(listen="8320", workers=None, kafka=True) == 2
    said = capsys.readouterr().err
    assert all(f"{name} " in said for name in (*wrong, "--listen"))
    assert "secret" not in said


def test_envoys_service_names_the_faults_of_all_its_parts(
    wrong: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """As above."""
    caplog.set_level(logging.ERROR)
    assert envoy.main({**wrong, "TALLYGATE_ENVOY_METRICS": "nowhere"}) == 2
    assert all(f"{name} " in caplog.text for name in (*wrong, "TALLYGATE_ENVOY_METRICS"))
    assert "secret" not in caplog.text
