"""The command: clear words for people, no traceback for their mistakes."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tallygate import cli, config
from tallygate.config import RunningStack
from tallygate.engines.errors import EngineError, PortTaken
from tallygate.foreground import command_words
from tallygate.up import LocalStack, StackOptions

_SECRET = "a secret of this run"
_VARIABLES = ("OWNER_URL", "KAFKA", "CLICKHOUSE", "DASHBOARD", "SECRET")


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in _VARIABLES:
        monkeypatch.delenv(f"TALLYGATE_{name}", raising=False)


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
        word in done.stdout
        for word in ("up", "demo", "recorder", "worker", "settler", "dashboard", "migrate", "link", "policy")
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


def test_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    """The first question of every bug report; a script reads the first line."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert capsys.readouterr().out.splitlines()[0] == f"tallygate {project['version']}"


def test_known_faults_are_one_line_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    """A traceback says to a user that the program is broken, when only a setting is."""
    assert cli.main(["up", "--data-dir", "somewhere"]) == 1
    assert capsys.readouterr().err == (
        "tallygate: --data-dir needs --broker kafka: the embedded broker keeps its log in memory only\n"
    )
    assert cli.main(["link"]) == 1
    assert capsys.readouterr().err.startswith("tallygate: no `tallygate up` runs here, and TALLYGATE_SECRET is not set")


def test_link_is_signed_by_the_stack_that_runs_here(capsys: pytest.CaptureFixture[str]) -> None:
    """`tallygate up` makes its own secret; nobody should have to copy it."""
    running = RunningStack("http://127.0.0.1:8321", _SECRET, os.getpid())
    assert _SECRET not in repr(running)
    config.announce(running)
    assert cli.main(["link", "--caller", "acme"]) == 0
    assert capsys.readouterr().out.startswith("http://127.0.0.1:8321/sign-in?token=")
    config.withdraw(running)
    assert config.announced() == []


def test_link_finds_each_of_two_stacks(capsys: pytest.CaptureFixture[str]) -> None:
    """The end of the second once took the announcement of the first with it."""
    first = RunningStack("http://127.0.0.1:8321", _SECRET, os.getpid())
    second = RunningStack("http://127.0.0.1:9321", "another secret of thirty-two characters", os.getppid())
    config.announce(first)
    config.announce(second)
    assert config.announced() == [second, first]
    assert cli.main(["link"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("http://127.0.0.1:9321/")
    assert "--base-url chooses another: http://127.0.0.1:8321" in said.err
    assert cli.main(["link", "--base-url", "http://127.0.0.1:8321/"]) == 0
    assert capsys.readouterr().out.startswith("http://127.0.0.1:8321/")
    config.withdraw(second)
    assert config.announced() == [first]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--caller", ""], "--caller is empty"),
        (["--role", "customer"], "--role customer needs --caller NAME"),
        (["--role", "support", "--caller", "acme"], "--caller does not go with --role support"),
        (["--base-url", "foo"], "--base-url is 'foo'; allowed: the address of the pages, such as http://127.0.0.1"),
        (["--base-url", "https:///pages"], "--base-url is 'https:///pages'"),
        (["--base-url", ""], "--base-url is ''"),
    ],
)
def test_link_speaks_of_its_flags(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The reader typed flags, and knows no fields."""
    config.announce(RunningStack("http://127.0.0.1:8321", _SECRET, os.getpid()))
    assert cli.main(["link", *words]) == 2
    assert capsys.readouterr().err.startswith(f"tallygate: {said}")


@pytest.mark.parametrize("caller", ["a\nb", "x" * 257])
def test_link_is_not_signed_for_a_name_that_no_caller_can_have(
    caller: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever opened it would be told that the database is away."""
    monkeypatch.setenv("TALLYGATE_SECRET", _SECRET)
    assert cli.main(["link", "--caller", caller]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "caller is " in said.err
    assert "allowed: text of 1 to 256 printable characters" in said.err


def test_link_goes_where_the_pages_are(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A link to a port on which nothing listens is the first thing that a newcomer would report."""
    config.announce(RunningStack("http://127.0.0.1:8999", _SECRET, os.getpid()))
    monkeypatch.setenv("TALLYGATE_SECRET", _SECRET)
    assert cli.main(["link"]) == 0
    monkeypatch.setenv("TALLYGATE_DASHBOARD", "127.0.0.1:9001")
    assert cli.main(["link"]) == 0
    assert cli.main(["link", "--base-url", "https://pages.example"]) == 0
    places = [line.partition("/sign-in")[0] for line in capsys.readouterr().out.splitlines()]
    assert places == ["http://127.0.0.1:8999", "http://127.0.0.1:9001", "https://pages.example"]


def test_announcement_of_a_process_that_was_killed_is_none() -> None:
    """It could not withdraw it, and its secret signs nothing any more."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    config.announce(RunningStack("http://127.0.0.1:8321", _SECRET, ended.pid))
    assert config.announced() == []


def test_announcement_is_readable_by_its_user_only(tmp_path: Path) -> None:
    """Whoever reads the secret can sign in as anyone."""
    config.announce(RunningStack("http://127.0.0.1:8321", _SECRET, os.getpid()))
    assert (tmp_path / "tallygate" / "up" / f"{os.getpid()}.json").stat().st_mode & 0o777 == 0o600


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


def test_stack_names_all_taken_ports_and_the_stack_that_runs() -> None:
    """One port a time makes four rounds, and usually one Ctrl-C is what is needed."""
    with socket.socket() as first, socket.socket() as second:
        for listener in (first, second):
            listener.bind(("127.0.0.1", 0))
            listener.listen()
        ports = [listener.getsockname()[1] for listener in (first, second)]
        options = StackOptions(owner_port=ports[0], kafka_port=ports[1], clickhouse_port=0, dashboard_port=0)
        with pytest.raises(PortTaken) as alone:
            LocalStack(options, say=print).start()
        config.announce(RunningStack("http://127.0.0.1:8321", _SECRET, os.getpid()))
        with pytest.raises(PortTaken) as beside:
            LocalStack(options, say=print).start()
    assert re.findall(r"port (\d+), meant for", str(alone.value)) == [str(port) for port in ports]
    assert "already running" not in str(alone.value)
    assert str(beside.value).startswith(
        "`tallygate up` is already running: its pages are at http://127.0.0.1:8321; end it with Ctrl-C in its terminal"
    )
    assert re.findall(r"port (\d+), meant for", str(beside.value)) == [str(port) for port in ports]


def _options_of(words: list[str], monkeypatch: pytest.MonkeyPatch) -> StackOptions:
    """What a command would start, had it been let."""
    seen: list[StackOptions] = []

    def note(*, options: StackOptions, **_: object) -> int:
        seen.append(options)
        return 0

    monkeypatch.setattr("tallygate.foreground.run_up", lambda options: note(options=options))
    monkeypatch.setattr("tallygate.demo.run.run", note)
    assert cli.main(words) == 0
    return seen[0]


def _ports_of(options: StackOptions) -> tuple[int, int, int, int]:
    return options.owner_port, options.kafka_port, options.clickhouse_port, options.dashboard_port


def test_up_takes_its_ports_from_flags_then_addresses_then_the_usual_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Gateways read the same addresses: what they are told is where the parts must be."""
    assert _ports_of(_options_of(["up"], monkeypatch)) == (16379, 19092, 18123, 8321)
    assert _ports_of(StackOptions()) == (16379, 19092, 18123, 8321)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("TALLYGATE_OWNER_URL", "redis://127.0.0.1:7001/0")
    monkeypatch.setenv("TALLYGATE_KAFKA", "broker:9092,user:password@127.0.0.1:9092")
    monkeypatch.setenv("TALLYGATE_CLICKHOUSE", "http://127.0.0.1:7002/tallygate")
    monkeypatch.setenv("TALLYGATE_DASHBOARD", "127.0.0.1:7003")
    found = _ports_of(_options_of(["up", "--clickhouse-port", "7009"], monkeypatch))
    assert found == (7001, 19092, 7009, 7003)
    said = capsys.readouterr().err
    assert said.startswith("tallygate: TALLYGATE_KAFKA names no port of 127.0.0.1: ")
    assert "own on port 19092" in said
    assert "password" not in said


def test_demo_takes_free_ports_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts every decision in its record: no gateway of anybody else may find it."""
    monkeypatch.setenv("TALLYGATE_OWNER_URL", "redis://127.0.0.1:7001/0")
    assert _ports_of(_options_of(["demo"], monkeypatch)) == (0, 0, 0, 0)
    assert _ports_of(_options_of(["demo", "--dashboard-port", "7003"], monkeypatch)) == (0, 0, 0, 7003)


def test_commands_are_printed_as_they_can_be_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a checkout `tallygate` is in .venv/bin, where no shell looks."""
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    python, program = programs / "python", programs / "tallygate"
    monkeypatch.setenv("PATH", "")
    module = "tallygate/__main__.py"
    assert command_words(module, executable=str(python), folder=tmp_path) == f"{python} -m tallygate"
    program.touch(mode=0o755)
    assert command_words(module, executable=str(python), folder=tmp_path) == ".venv/bin/tallygate"
    assert command_words(".venv/bin/tallygate", executable=str(python), folder=tmp_path) == ".venv/bin/tallygate"
    assert command_words(str(program), executable=str(python), folder=Path("/")) == str(program.relative_to("/"))
    monkeypatch.setenv("PATH", str(programs))
    assert command_words(str(program), executable=str(python), folder=tmp_path) == "tallygate"


@pytest.mark.parametrize(
    "words",
    [
        ["audit", "gaps"],
        ["dead-letters", "list"],
        ["retention", "show"],
        ["replay", "--from", "raw", "--into", "tallygate_shadow"],
    ],
    ids=lambda words: words[0],
)
def test_main_never_takes_a_wrong_setting_for_an_answer(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A nightly job takes exit code 1 for "the record does not agree", and wakes somebody."""
    monkeypatch.setenv("TALLYGATE_CLICKHOUSE", "nonsense")
    assert 2 == cli.main(words)
    assert "TALLYGATE_CLICKHOUSE" in capsys.readouterr().err
