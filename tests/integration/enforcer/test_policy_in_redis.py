"""A fleet's policy on a real server: pushed, followed within two seconds, refused in one step, kept in an outage."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from enforcer.config import EnforcerConfig
from enforcer.errors import PolicyAway
from enforcer.limiting.limiter import Limiter
from enforcer.owners.asking import ask_server
from enforcer.wiring import build_limiter
from tallygate import cli
from tallygate.engines.valkey import Valkey
from tests.docs.snippets import snippets
from tests.processes import freeze, thaw, wait_until

pytestmark = pytest.mark.services

PAGE = Path(__file__).resolve().parents[3] / "docs" / "howto" / "one-policy-for-a-fleet.md"

POLICY = "version: {version}\nplans: {{standard: {{rate_per_s: {rate}, burst: 200}}}}\ndefault_plan: standard\n"


class Kept:
    """A server with the users of the page for it, and what gateways and people use of it."""

    def __init__(self, server: Valkey, folder: Path) -> None:
        self.server = server
        self.admin = redis.Redis.from_url(server.url)
        (users,) = snippets(PAGE, "redis")
        for line in users.splitlines():
            ask_server(server.url, tuple(line.split()), timeout_s=5)
        self.reader, self.writer = (
            f"redis://{user}:{password}@{server.address}/0?key=tallygate:policy"
            for user, password in (("policy-reader", "another-password"), ("policy-writer", "a-long-password"))
        )
        self.file = folder / "policy.yaml"

    def push(self, version: int, rate: float, *, comment: str = "") -> int:
        self.file.write_text(POLICY.format(version=version, rate=rate) + comment)
        return cli.main(["policy", "push", str(self.file), "--to", self.writer])

    def gateway(self) -> Limiter:
        return build_limiter(
            EnforcerConfig(owner_url=self.server.url, policy_path=self.reader, copy_id=f"gw-{time.monotonic_ns()}")
        )


@pytest.fixture
def kept(fresh_valkey: Valkey, tmp_path: Path) -> Iterator[Kept]:
    """Nothing is pushed yet."""
    kept = Kept(fresh_valkey, tmp_path)
    yield kept
    kept.admin.close()


def test_a_push_is_in_force_in_every_gateway_within_two_seconds(kept: Kept) -> None:
    """E19: a plan that was sold at noon; and what is pushed wrongly afterwards changes nothing."""
    assert 0 == kept.push(1, 100)
    gateways = [kept.gateway() for _ in range(3)]
    try:
        assert {1} == {gateway.check("acme").basis.policy_version for gateway in gateways}
        assert 0 == kept.push(2, 50)
        pushed_s = time.monotonic()
        wait_until(
            lambda: {2} == {gateway.check("acme").basis.policy_version for gateway in gateways}, 20, what="version 2"
        )
        assert time.monotonic() - pushed_s < 2
    finally:
        for gateway in gateways:
            gateway.close()


def test_a_push_that_would_take_the_fleet_back_is_refused_in_one_step(
    kept: Kept, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two people push at once: one of them must be told, and no version may have two meanings."""
    assert [0, 0] == [kept.push(3, 100), kept.push(3, 100)]
    assert 0 == kept.push(3, 100, comment="# the same policy, said otherwise\n")
    before = kept.admin.hgetall("tallygate:policy")
    capsys.readouterr()
    assert [1, 1, 1] == [kept.push(3, 7), kept.push(2, 100), kept.push(4, -1)]
    said = capsys.readouterr().err
    assert "has version 3 with other content; allowed: a version above 3" in said
    assert "has version 3, above 2; allowed: a version above 3" in said
    assert "rate_per_s" in said
    assert before == kept.admin.hgetall("tallygate:policy")
    assert "password" not in said


def test_the_commands_of_the_page_run(kept: Kept, tmp_path: Path) -> None:
    """It is what an operator copies."""
    (tmp_path / "policy.yaml").write_text(POLICY.format(version=7, rate=100))
    commands = "\n".join(snippets(PAGE, "sh")).replace("127.0.0.1:6379", kept.server.address)
    found = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", commands],
        cwd=tmp_path,
        env={**os.environ, "PATH": found},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (0, "") == (done.returncode, done.stderr)
    shown = f"redis://{kept.server.address}/0?key=tallygate:policy"
    assert [
        f"policy.yaml: version 7: pushed: {shown}",
        f"{shown}: version 7, 1 plan, 0 callers, 0 scopes, 0 limits: valid",
    ] == done.stdout.splitlines()


def test_what_stands_there_can_be_checked(kept: Kept, capsys: pytest.CaptureFixture[str]) -> None:
    """Before a fleet is pointed at it."""
    assert 1 == cli.main(["policy", "check", kept.reader])
    assert "there is no policy" in capsys.readouterr().err
    kept.push(5, 100)
    capsys.readouterr()
    assert 0 == cli.main(["policy", "check", kept.reader])
    assert "?key=tallygate:policy: version 5, 1 plan, 0 callers, 0 scopes, 0 limits: valid" in capsys.readouterr().out
    kept.admin.delete("tallygate:policy")
    kept.admin.set("tallygate:policy", "version: 6")
    assert 1 == cli.main(["policy", "check", kept.reader])
    assert "is no policy (WRONGTYPE" in capsys.readouterr().err


def test_a_frozen_server_stops_no_request_and_is_followed_again(
    kept: Kept, caplog: pytest.LogCaptureFixture, valkey_url: str
) -> None:
    """The policy's server is not on the request path: the last good one stays in force, and the next is followed."""
    kept.push(1, 100)
    gateway = build_limiter(EnforcerConfig(owner_url=valkey_url, policy_path=kept.reader, copy_id="gw-frozen"))
    running = [gateway]
    try:
        freeze(kept.server.pid)
        wait_until(lambda: "cannot be read" in caplog.text, 20, what="the alarm")
        started_s = time.monotonic()
        assert all(gateway.check("acme").allowed for _ in range(20))
        assert time.monotonic() - started_s < 1
        with pytest.raises(PolicyAway):
            kept.gateway()
        assert 1 == sum(getattr(record, "action", "") == "policy_load_error" for record in caplog.records)
        again = f"{kept.reader}&fallback={kept.file}"
        running.append(build_limiter(EnforcerConfig(owner_url=valkey_url, policy_path=again, copy_id="gw-again")))
        thaw(kept.server.pid)
        assert 0 == kept.push(2, 50)
        wait_until(
            lambda: all(each.check("acme").basis.policy_version == 2 for each in running), 20, what="version 2 in both"
        )
    finally:
        thaw(kept.server.pid)
        for each in running:
            each.close()
    assert "password" not in caplog.text
