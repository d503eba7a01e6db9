"""From settings to a limiter: what is wrong is said at once, and an owner that is away is not wrong."""

from __future__ import annotations

import ast
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from enforcer.clock import ManualClock, SystemClock
from enforcer.config import EnforcerConfig, default_copy_id
from enforcer.errors import ConfigError, PolicyError
from enforcer.identity import CopyIdentity
from enforcer.policies import load_policy
from enforcer.testing import RecordingSink
from enforcer.types import Source
from enforcer.wiring import build_limiter

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "asgi"
#: Nothing listens there: the discard port, and root's.
NOBODY = "redis://user:secret@127.0.0.1:9/0"


def test_settings_have_defaults_and_empty_is_not_set() -> None:
    """The defaults are what `tallygate up` serves."""
    config = EnforcerConfig.from_env({"TALLYGATE_OWNER_URL": ""})
    assert ("redis://127.0.0.1:16379/0", "policy.yaml") == (config.owner_url, config.policy_path)
    config = EnforcerConfig.from_env(
        {"TALLYGATE_OWNER_URL": "unix:///x", "TALLYGATE_POLICY": "p.yaml", "TALLYGATE_COPY_ID": "gw-1"}
    )
    assert ("unix:///x", "p.yaml", "gw-1") == (config.owner_url, config.policy_path, config.copy_id)


def test_all_wrong_settings_are_named_at_once_and_no_address_is_shown() -> None:
    """A password in an error message ends up in every log."""
    with pytest.raises(ConfigError) as caught:
        EnforcerConfig.from_env({"TALLYGATE_OWNER_URL": "http://u:secret@h", "TALLYGATE_COPY_ID": "a b"})
    assert "TALLYGATE_OWNER_URL has the scheme 'http'; allowed: redis://, " in str(caught.value)
    assert "TALLYGATE_COPY_ID" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_configuration_is_shown_without_its_passwords() -> None:
    """A representation is what a debugger, a failing test and an error tracker show."""
    addresses = {"TALLYGATE_OWNER_URL": "redis://:secret@h", "TALLYGATE_POLICY": "redis://:secret@h?key=p"}
    config = EnforcerConfig.from_env({**addresses, "TALLYGATE_COPY_ID": "gw-1"})
    assert "redis://:secret@h" == config.owner_url
    assert "EnforcerConfig(copy_id='gw-1')" == repr(config)


@pytest.mark.parametrize(
    ("hostname", "copy_id"),
    [("gw-17.example", "gw-17.example-42"), ("", "copy-42"), ("_ä b", "b-42"), ("x" * 99, "x" * 48 + "-42")],
)
def test_any_hostname_makes_a_valid_copy_id(hostname: str, copy_id: str) -> None:
    """A copy must start wherever it is put."""
    assert copy_id == default_copy_id(hostname, 42)


def test_an_unreachable_owner_starts_degraded_says_so_once_and_decides(caplog: pytest.LogCaptureFixture) -> None:
    """Starting a gateway must not depend on the limiter's owner, and its log must not fill with one outage."""
    sinks: list[RecordingSink] = []

    def sink(identity: CopyIdentity) -> RecordingSink:
        sinks.append(RecordingSink())
        return sinks[0]

    config = EnforcerConfig(owner_url=NOBODY, policy_path=str(EXAMPLE / "policy.yaml"), copy_id="gw-1")
    with caplog.at_level(logging.INFO, logger="enforcer"):
        limiter = build_limiter(config, sink=sink)
        verdicts = [limiter.check("marlow") for _ in range(30)]
        limiter.close()
    assert 10 == sum(verdict.allowed for verdict in verdicts)
    assert {Source.DEGRADED} == {verdict.source for verdict in verdicts}
    told = [record for record in caplog.records if getattr(record, "action", "") == "degrade_entered"]
    assert 1 == len(told)
    assert "secret" not in caplog.text
    assert [True] == [change.entered for change in sinks[0].changes]
    assert "secret" not in sinks[0].changes[0].owner + sinks[0].changes[0].cause


@pytest.mark.parametrize("sink", [None, lambda _identity: RecordingSink()])
def test_a_limiter_that_records_nothing_says_so(
    sink: Callable[[CopyIdentity], RecordingSink] | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Support would look in vain for the request id of a refusal."""
    config = EnforcerConfig(owner_url=NOBODY, policy_path=str(EXAMPLE / "policy.yaml"), copy_id="gw-1")
    build_limiter(config, sink=sink).close()
    said = [record.getMessage() for record in caplog.records if getattr(record, "action", "") == "not_recorded"]
    assert (["decisions are not recorded: no sink was given"] if sink is None else []) == said


_FORGETFUL = """
import sys
from pathlib import Path
from enforcer import build_limiter
from enforcer.testing import RecordingSink

class Kept(RecordingSink):
    def close(self, timeout_s):
        super().close(timeout_s)
        Path(sys.argv[1]).write_text(f"{len(self.verdicts)}\\n")

def script():
    limiter = build_limiter(sink=lambda identity: Kept())
    limiter.check("acme")
    if sys.argv[2] == "closes":
        limiter.close()
        Path(sys.argv[1]).unlink()

script()
"""


@pytest.mark.parametrize(("ends", "recorded"), [("forgets", "1\n"), ("closes", None)])
def test_a_script_that_forgets_to_close_its_limiter_loses_nothing(
    ends: str, recorded: str | None, tmp_path: Path
) -> None:
    """The last second of the record would be missing, and no error would say so; and nothing is closed twice."""
    kept = tmp_path / "kept"
    environ = {**os.environ, "TALLYGATE_OWNER_URL": NOBODY, "TALLYGATE_POLICY": str(EXAMPLE / "policy.yaml")}
    subprocess.run([sys.executable, "-c", _FORGETFUL, str(kept), ends], check=True, env=environ, timeout=60)
    assert recorded == (kept.read_text() if kept.exists() else None)


def test_a_wrong_address_or_policy_is_an_error_at_build(tmp_path: Path) -> None:
    """What no retry can mend must not start."""
    good = str(EXAMPLE / "policy.yaml")
    with pytest.raises(ConfigError, match="TALLYGATE_OWNER_URL: owner address has a port that is no number; allowed"):
        build_limiter(EnforcerConfig(owner_url="redis://host:notaport/0", policy_path=good, copy_id="a"))
    with pytest.raises(ConfigError, match="TALLYGATE_OWNER_URL: owner address has the port 99999; allowed: 0 to 65535"):
        build_limiter(EnforcerConfig(owner_url="redis://u:secret@h:99999", policy_path=good, copy_id="a"))
    bad = tmp_path / "bad.yaml"
    bad.write_text("colour: red\n")
    with pytest.raises(PolicyError):
        build_limiter(EnforcerConfig(owner_url=NOBODY, policy_path=str(bad), copy_id="a"))


def test_a_policy_file_that_is_not_there_is_a_wrong_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file has no faults: the reader must be sent to the setting, and shown where the file was looked for."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        build_limiter(EnforcerConfig(owner_url=NOBODY, policy_path="none.yaml", copy_id="a"))
    assert f"the policy file that TALLYGATE_POLICY names does not exist: {tmp_path / 'none.yaml'} " in str(caught.value)


def test_the_example_is_ten_lines_and_its_policy_valid() -> None:
    """The README sends every newcomer there first."""
    assert 1 == load_policy(EXAMPLE / "policy.yaml").version
    tree = ast.parse((EXAMPLE / "app.py").read_text())
    lines = {node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt)}
    assert len(lines) <= 10


def test_clocks_move_as_they_should() -> None:
    """A monotonic clock that goes back would refill for ever."""
    clock = ManualClock()
    before = (clock.monotonic_ns(), clock.unix_us())
    clock.advance(1.5)
    clock.step_wall(-10)
    assert (before[0] + 1_500_000_000, before[1] - 8_500_000) == (clock.monotonic_ns(), clock.unix_us())
    with pytest.raises(ValueError, match="never goes back"):
        clock.advance(-1)
    system = SystemClock()
    assert system.monotonic_ns() <= system.monotonic_ns()
    assert system.unix_us() > 1_700_000_000_000_000
