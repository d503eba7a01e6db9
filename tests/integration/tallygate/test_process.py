"""Children that cannot outlive us, and engines that explain why they did not start."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tallygate.engines import apache_kafka, kafka_jars
from tallygate.engines.clickhouse import start_clickhouse
from tallygate.engines.errors import EngineFailed, EngineMissing, PortTaken
from tallygate.engines.kafka import KafkaBroker, answers_kafka
from tallygate.engines.ports import free_port
from tallygate.engines.process import Child, Command, describe_exit, spawn, stop_all
from tallygate.engines.tansu import start_tansu
from tallygate.engines.valkey import Valkey, start_valkey
from tallygate.scratch import Scratch
from tests.processes import freeze, is_running, kill, wait_until
from tests.services import unavailable

_SLEEP = [sys.executable, "-c", "import time; print('begun', flush=True); time.sleep(600)"]
_STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('begun', flush=True); time.sleep(600)",
]

#: Starts a child from a short-lived thread, then says its pid and waits.
_PARENT = """
import sys, threading, time
from pathlib import Path
from tallygate.engines.process import Command, spawn
children = []
program = "import time; print('begun', flush=True); time.sleep(600)"
command = Command("child", [sys.executable, "-c", program], Path(sys.argv[1]))
thread = threading.Thread(target=lambda: children.append(spawn(command)))
thread.start()
thread.join()
print(children[0].pid, flush=True)
time.sleep(600)
"""


def _begun(child: Child) -> Callable[[], bool]:
    return lambda: "begun" in child.log_tail()


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM])
def test_child_dies_with_its_parent(tmp_path: Path, signal_number: signal.Signals) -> None:
    """An orphaned engine holds its port, and the next start fails for no visible reason."""
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        # Not before the program itself runs: until then it would notice by itself that its parent is gone.
        wait_until(lambda: "begun" in (tmp_path / "log").read_text(), 10, what="the child")
        parent.send_signal(signal_number)
        parent.wait()
        wait_until(lambda: not is_running(pid), 5, what="the end of the child")


def test_child_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    """The kernel's death signal comes when the forking *thread* ends; engines are started from pools too."""
    started: list[Child] = []

    def start() -> None:
        child = spawn(Command("child", _SLEEP, tmp_path / "log"))
        started.append(child)
        # The signal is bound to the thread only once the child has asked for it.
        child.wait_ready(_begun(child), timeout_s=10)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    with started[0] as child:
        assert child.wait(timeout_s=0.5) is None


def test_tether_ends_when_the_parent_is_gone_already(tmp_path: Path) -> None:
    """The parent may die between fork and prctl; no signal would ever come then."""
    tether = Path(apache_kafka.__file__).with_name("tether.py")
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(tether), "1", "9", "touch", str(tmp_path / "ran")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "parent 1 is gone" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_pid_is_that_of_the_program(tmp_path: Path) -> None:
    """Chaos tests freeze and kill by this pid; a wrapper's would change nothing."""
    with spawn(Command("child", _SLEEP, tmp_path / "log")) as child:
        child.wait_ready(_begun(child), timeout_s=10)
        assert b"time.sleep(600)" in Path(f"/proc/{child.pid}/cmdline").read_bytes()
        assert b"tether" not in Path(f"/proc/{child.pid}/cmdline").read_bytes()


def test_stop_ends_a_frozen_and_a_stubborn_child(tmp_path: Path) -> None:
    """A stop that waits for ever leaves the whole command hanging."""
    frozen = spawn(Command("frozen", _SLEEP, tmp_path / "frozen"))
    stubborn = spawn(Command("stubborn", _STUBBORN, tmp_path / "stubborn"))
    for child in (frozen, stubborn):
        child.wait_ready(_begun(child), timeout_s=10)
    freeze(frozen.pid)
    stop_all([frozen, stubborn], timeout_s=0.5)
    assert (frozen.exit_code(), stubborn.exit_code()) == (-signal.SIGTERM, -signal.SIGKILL)
    stubborn.stop()


def test_failed_start_shows_the_logs_tail(tmp_path: Path) -> None:
    """ "It did not start" without the reason sends the reader looking for a log."""
    child = spawn(Command("engine", [sys.executable, "-c", "raise SystemExit('no such disk')"], tmp_path / "log"))
    with pytest.raises(EngineFailed, match=r"engine ended with exit code 1 before it was ready(.|\n)*no such disk"):
        child.wait_ready(lambda: False, timeout_s=10)


def test_start_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    """Otherwise it would come up later, unwanted, on its port."""
    child = spawn(Command("engine", _SLEEP, tmp_path / "log"))
    child.wait_ready(_begun(child), timeout_s=10)
    with pytest.raises(EngineFailed, match=r"engine was not ready after 0\.1 s"):
        child.wait_ready(lambda: False, timeout_s=0.1)
    assert child.exit_code() is not None


def test_missing_program_is_named(tmp_path: Path) -> None:
    """The shell's own words for it name no program."""
    child = spawn(Command("engine", ["/nowhere/valkey-server"], tmp_path / "log"))
    with pytest.raises(EngineFailed, match="cannot run /nowhere/valkey-server: No such file"):
        child.wait_ready(lambda: False, timeout_s=10)


def test_describe_exit_names_signals() -> None:
    """ "-9" tells few people that the process was killed."""
    assert (describe_exit(3), describe_exit(-9), describe_exit(-200)) == ("exit code 3", "signal SIGKILL", "signal 200")


@pytest.mark.parametrize("start", [start_valkey, start_tansu])
def test_engine_without_a_folder_leaves_none_behind(
    start: Callable[[], Valkey | KafkaBroker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder for each run of the tests adds up."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    engine = start()
    assert len(list(tmp_path.iterdir())) == 1
    engine.stop()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("start", [start_valkey, start_tansu])
def test_engine_on_a_taken_port_says_who_holds_it(start: Callable[..., object]) -> None:
    """The commonest fault of a local start."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = int(listener.getsockname()[1])
        with pytest.raises(PortTaken, match=rf"port {port}, .* is taken by .*\(pid {os.getpid()}\)"):
            start(port)


def test_apache_kafka_without_jars_says_what_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting never downloads anything by itself."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    with pytest.raises(EngineMissing, match=r"python -m tallygate\.engines\.apache_kafka install"):
        apache_kafka.start_apache_kafka(tmp_path / "data")


def test_jars_are_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A half copied folder would start Kafka with classes missing, for ever after."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    fake = tmp_path / "mvn"
    fake.write_text(
        "#!/bin/sh\nfor a; do case $a in -DoutputDirectory=*) d=${a#*=};; esac; done\n"
        "mkdir -p $d; touch $d/x.jar; exit $FAIL\n"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for fail in ("1", "0"):
        monkeypatch.setenv("FAIL", fail)
        with pytest.raises(EngineFailed, match="Maven"):
            kafka_jars.install_jars()
        assert not kafka_jars.jars_dir().exists()
        assert [path.name for path in (tmp_path / "tallygate").iterdir()] == [f"kafka-{kafka_jars.KAFKA_VERSION}.lock"]


def test_apache_kafka_opens_its_folder_again_after_a_kill(tmp_path: Path) -> None:
    """Chaos tests kill the broker and need the same log, on the same port, afterwards."""
    if not kafka_jars.jars_dir().is_dir():
        unavailable("Apache Kafka is not installed")
    port = free_port()
    first = apache_kafka.start_apache_kafka(tmp_path, port)
    kill(first.pid)
    first.stop()
    assert not answers_kafka("127.0.0.1", port)
    again = apache_kafka.start_apache_kafka(tmp_path, port)
    try:
        assert answers_kafka("127.0.0.1", port)
    finally:
        again.stop()


def test_clickhouse_folder_that_is_in_use_is_refused(tmp_path: Path) -> None:
    """Two engines on one folder would each overwrite what the other wrote."""
    first = start_clickhouse(tmp_path / "data")
    try:
        with pytest.raises(EngineFailed, match=r"(?i)lock"):
            start_clickhouse(tmp_path / "data", timeout_s=30)
    finally:
        first.stop()
    assert first.child.exit_code() == 0


def test_scratch_folders_of_killed_runs_are_removed_and_living_ones_kept(tmp_path: Path) -> None:
    """Every killed run leaves a database behind; nobody looks into the temporary folder."""
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom tallygate.scratch import Scratch\n"
        "print(Scratch(Path(sys.argv[1])).path, flush=True)\ntime.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        orphan = Path(run.stdout.readline().strip())
        own = Scratch(tmp_path)
        assert orphan.is_dir()
        run.kill()
    other = Scratch(tmp_path)
    assert not orphan.exists()
    assert own.path.is_dir()
    for scratch in (own, other):
        scratch.remove()
        scratch.remove()
    assert list(tmp_path.iterdir()) == []
