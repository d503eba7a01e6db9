"""Everything on this machine, as `tallygate up` starts it, restarts it and ends it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import clickhouse_connect
import pytest
from confluent_kafka.admin import AdminClient

from stream.contract.topics import TOPICS
from tallygate.engines.errors import EngineFailed
from tallygate.engines.ports import free_port
from tallygate.up import LocalStack, StackOptions
from tests.processes import children_of, is_running, kill, wait_until

_ANY_PORT = ("--owner-port", "0", "--kafka-port", "0", "--clickhouse-port", "0", "--dashboard-port", "0")
_OPTIONS = StackOptions(owner_port=0, kafka_port=0, clickhouse_port=0, dashboard_port=0)
_UP_S = 120.0


class _Up:
    """A `tallygate up` in a process of its own."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._out = folder / "up.out"
        environ = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "TMPDIR": str(folder)}
        with self._out.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tallygate", "up", *words], stdout=out, stderr=subprocess.STDOUT, env=environ
            )

    @property
    def said(self) -> str:
        return self._out.read_text()

    def wait(self) -> None:
        wait_until(
            lambda: "is up" in self.said or self.process.poll() is not None, _UP_S, what=f"`tallygate up`: {self.said}"
        )
        assert self.process.poll() is None, self.said

    def children(self) -> dict[int, str]:
        """Command lines of its children, by pid."""
        return children_of(self.process.pid)


@contextmanager
def _running(folder: Path, *words: str) -> Iterator[_Up]:
    up = _Up(folder, *words)
    try:
        yield up
    finally:
        if up.process.poll() is None:
            up.process.kill()
        up.process.wait()


def test_up_serves_everything_and_ends_on_ctrl_c(tmp_path: Path) -> None:
    """The first thing that a new user does, and the second."""
    with _running(tmp_path, *_ANY_PORT) as up:
        up.wait()
        children = up.children()
        assert len(children) == 8
        link = re.search(r"http://\S+sign-in\S+", up.said)
        assert link is not None
        assert "The record is thrown away when this ends" in up.said
        assert re.search(r"^  \S*tallygate up --broker kafka --data-dir DIR$", up.said, re.MULTILINE) is not None
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with browser.open(link.group(), timeout=30) as page:
            assert page.status == 200
        began_s = time.monotonic()
        up.process.send_signal(signal.SIGINT)
        assert up.process.wait(timeout=30) == 0
        # Nothing waits for a timeout of ten seconds or more, on however slow a machine.
        assert time.monotonic() - began_s < 10
        assert not any(is_running(pid) for pid in children)
    assert "Traceback" not in up.said
    assert list(tmp_path.glob("tallygate-run-*")) == []
    assert list((tmp_path / "cache" / "tallygate" / "up").iterdir()) == []


def test_up_leaves_no_child_when_it_is_killed(tmp_path: Path) -> None:
    """Nothing runs in the killed process any more, so the kernel must do it."""
    with _running(tmp_path, *_ANY_PORT) as up:
        up.wait()
        children = up.children()
        assert len(children) == 8
        up.process.kill()
        up.process.wait()
        wait_until(lambda: not any(is_running(pid) for pid in children), 10, what=f"the end of {children}")


def test_up_on_a_taken_port_starts_nothing(tmp_path: Path) -> None:
    """Another `tallygate up` is usually what holds it."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = str(listener.getsockname()[1])
        words = [*_ANY_PORT[:6], "--dashboard-port", port]
        with _running(tmp_path, *words) as up:
            assert up.process.wait(timeout=60) == 1
            assert up.said.startswith(f"tallygate: port {port}, meant for the pages, is taken by ")
            assert "--dashboard-port" in up.said
            assert "starting" not in up.said


def test_local_stack_restarts_a_crashed_part_and_ends_with_an_engine() -> None:
    """A crashed recorder loses nothing and comes back; without an engine there is nothing to come back to."""
    said: list[str] = []
    with LocalStack(_OPTIONS, say=said.append) as stack:
        client = clickhouse_connect.get_client(dsn=stack.environ["TALLYGATE_CLICKHOUSE"])
        tables = {row[0] for row in client.query("SHOW TABLES").result_rows}
        assert {"decisions", "live", "migrations"} <= tables
        client.close()
        listed = AdminClient({"bootstrap.servers": stack.environ["TALLYGATE_KAFKA"]}).list_topics(timeout=5).topics
        assert {topic.name for topic in TOPICS} <= set(listed)
        assert {len(listed[topic.name].partitions) for topic in TOPICS} == {4}
        first = stack.processes["recorder"]
        kill(first)

        def back() -> bool:
            stack.check()
            return stack.processes.get("recorder", first) != first

        wait_until(back, 10, what="a new recorder")
        assert any("the recorder ended with signal SIGKILL" in line for line in said)
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{stack.dashboard_url}/sign-in?token=wrong", timeout=10)
        folder = stack.log_dir
        kill(stack.processes["Valkey"])
        with pytest.raises(EngineFailed, match="Valkey ended with signal SIGKILL"):
            stack.check()
        pids = list(stack.processes.values())
    assert not any(is_running(pid) for pid in pids)
    assert not folder.exists()


def test_local_stack_stops_what_had_started_when_a_part_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed start must not leave engines on their ports."""
    port = free_port()
    stack = LocalStack(
        StackOptions(owner_port=port, kafka_port=0, clickhouse_port=0, dashboard_port=0), say=lambda _: None
    )
    monkeypatch.setattr("tallygate.up.start_clickhouse", _fail)
    with pytest.raises(EngineFailed, match="no disk"):
        stack.start()
    assert stack.processes == {}
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))


def _fail(*_: object, **__: object) -> object:
    raise EngineFailed("no disk")
