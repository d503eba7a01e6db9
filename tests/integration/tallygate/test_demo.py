"""The demonstration when it is ended, and when a gateway dies under it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.processes import children_of, is_running, kill, wait_until

_UP_S = 150.0


class _Demo:
    """A `tallygate demo` in a process of its own, its temporary folder within `folder`."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._out = folder / "demo.out"
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        environ = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "TMPDIR": str(self.temporary)}
        with self._out.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tallygate", "demo", "--copies", "2", "--rate", "60", *words],
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environ,
            )

    @property
    def said(self) -> str:
        return self._out.read_text()

    def wait_for(self, words: str) -> None:
        wait_until(lambda: words in self.said or self.process.poll() is not None, _UP_S, what=f"{words!r}: {self.said}")
        assert self.process.poll() is None, self.said

    def children(self) -> dict[int, str]:
        """Command lines of its children, by pid."""
        return children_of(self.process.pid)


@contextmanager
def _running(folder: Path, *words: str) -> Iterator[_Demo]:
    # What is ignored here would be ignored there as well.
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    demo = _Demo(folder, *words)
    signal.signal(signal.SIGHUP, before)
    try:
        yield demo
    finally:
        if demo.process.poll() is None:
            demo.process.kill()
        demo.process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda number: str(number.name))
def test_demo_ends_in_good_order_by_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    """A closed terminal or a stopped job left its folder behind, and said nothing."""
    with _running(tmp_path, "--seconds", "600") as demo:
        demo.wait_for("answered")
        children = list(demo.children())
        demo.process.send_signal(number)
        assert demo.process.wait(60) == 128 + number
        assert f"tallygate: {number.name}: the demonstration ends before its count; nothing of it is kept" in demo.said
        assert "Traceback" not in demo.said
        assert [] == list(demo.temporary.glob("tallygate-run-*"))
        assert not [pid for pid in children if is_running(pid)]


def test_demo_counts_after_an_early_ctrl_c_and_ends_at_another_one(tmp_path: Path) -> None:
    """The first one is "enough traffic", not "forget it"; one before the traffic is "forget it"."""
    with _running(tmp_path, "--seconds", "600") as demo:
        demo.wait_for("answered")
        demo.process.send_signal(signal.SIGINT)
        assert demo.process.wait(120) == 0, demo.said
        assert "equal: " in demo.said
    (tmp_path / "second").mkdir()
    with _running(tmp_path / "second", "--seconds", "600") as demo:
        demo.wait_for("starting Valkey")
        demo.process.send_signal(signal.SIGINT)
        assert demo.process.wait(60) == 128 + signal.SIGINT
        assert "SIGINT: the demonstration ends before its count" in demo.said
        assert [] == list(demo.temporary.glob("tallygate-run-*"))


def test_demo_counts_without_a_gateway_that_was_killed(tmp_path: Path) -> None:
    """A crash is what a record is for: the table still comes, with the decisions that went with it named."""
    report = tmp_path / "report.json"
    with _running(tmp_path, "--seconds", "12", "--report", str(report)) as demo:
        demo.wait_for("answered")
        gateways = [pid for pid, command in demo.children().items() if "tallygate.demo.gateway" in command]
        assert len(gateways) == 2
        kill(max(gateways))
        assert demo.process.wait(150) == 1, demo.said
        said = demo.said
    assert "ended with signal SIGKILL; its requests go to the others" in said
    assert "live ref." in said
    assert "1 gateway was lost, and what it held went with it:" in said
    document = json.loads(report.read_text())
    assert document["equal"] is False
    (lost,) = document["lost_gateways"]
    assert f"{lost['copy_id']} ended with signal SIGKILL" in said
    assert lost["missing"] == max(0, lost["answered"] - lost["recorded"])
