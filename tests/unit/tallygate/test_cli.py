"""The command: clear words for people, no traceback for their mistakes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tallygate import cli, config
from tallygate.config import RunningStack
from tallygate.engines.errors import EngineError
from tallygate.up import LocalStack, StackOptions


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_help_loads_neither_engines_nor_clients() -> None:
    """`tallygate --help` must answer at once; pyarrow and faust take seconds."""
    code = (
        "import sys\nfrom tallygate.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'faust', 'pyarrow', 'chdb', 'clickhouse_connect', 'confluent_kafka', 'pydantic', 'redis'}\n"
        "sys.exit(','.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(
        word in done.stdout for word in ("up", "demo", "recorder", "worker", "dashboard", "migrate", "link", "policy")
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "COMMAND"),
        (["up", "--kafka-port", "70000"], "'70000' is not a port; allowed: 0 to 65535"),
        (["up", "--broker", "rabbit"], "rabbit"),
        (["demo", "--rate", "nan"], "'nan'; allowed: a number above 0"),
        (["demo", "--copies", "0"], "'0'; allowed: a whole number from 1 to 1024"),
    ],
)
def test_wrong_words_are_refused_with_what_is_allowed(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message is all that the reader sees."""
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_known_faults_are_one_line_without_a_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A traceback says to a user that the program is broken, when only a setting is."""
    assert cli.main(["up", "--data-dir", "somewhere"]) == 1
    assert capsys.readouterr().err == (
        "tallygate: --data-dir needs --broker kafka: the embedded broker keeps its log in memory only\n"
    )
    monkeypatch.delenv("TALLYGATE_SECRET", raising=False)
    assert cli.main(["link"]) == 1
    assert "TALLYGATE_SECRET" in capsys.readouterr().err


def test_link_is_signed_by_the_stack_that_runs_here(capsys: pytest.CaptureFixture[str]) -> None:
    """`tallygate up` makes its own secret; nobody should have to copy it."""
    running = RunningStack("http://127.0.0.1:8321", "a secret of this run")
    config.announce(running)
    assert cli.main(["link", "--caller", "acme"]) == 0
    assert capsys.readouterr().out.startswith("http://127.0.0.1:8321/sign-in?token=")
    config.withdraw(RunningStack("http://127.0.0.1:9", "another"))
    assert config.announced() == running
    config.withdraw(running)
    assert config.announced() is None


def test_announcement_is_readable_by_its_user_only(tmp_path: Path) -> None:
    """Whoever reads the secret can sign in as anyone."""
    config.announce(RunningStack("http://127.0.0.1:8321", "a secret of this run"))
    assert (tmp_path / "tallygate" / "up.json").stat().st_mode & 0o777 == 0o600


def test_policy_check_reports_all_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One fault at a time makes five rounds of five faults."""
    path = tmp_path / "policy.yaml"
    path.write_text("nonsense: true\n")
    assert cli.main(["policy", "check", str(path)]) == 1
    assert str(path) in capsys.readouterr().err


@pytest.mark.parametrize(("workers", "partitions"), [(0, 4), (5, 4), (1, 0)])
def test_stack_options_refuse_workers_without_a_partition(workers: int, partitions: int) -> None:
    """Such a worker would sit idle, and its user wonder why."""
    with pytest.raises(EngineError, match="--workers"):
        StackOptions(workers=workers, partitions=partitions)


def test_stack_claims_every_port_before_it_starts_anything() -> None:
    """Half a system that is then torn down is a worse answer than none."""
    port = 21_999
    stack = LocalStack(StackOptions(owner_port=0, kafka_port=port, clickhouse_port=0, dashboard_port=port), say=print)
    with pytest.raises(EngineError, match=f"--dashboard-port is {port}"):
        stack.start()
    assert stack.processes == {}
