"""A policy file that is edited while it is in force (E19)."""

from __future__ import annotations

from pathlib import Path

import pytest

from enforcer.policies.sources import FilePolicy, begin_with
from enforcer.policies.watching import PolicyWatcher
from enforcer.sink import PolicyChanged
from tests.unit.enforcer.harness import Fleet, make_policy

POLICY = """\
version: {version}
plans:
  standard: {{rate_per_s: {rate}, burst: 200}}
default_plan: standard
"""


class Edited:
    """A fleet of one copy, and the file that it goes by."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._edits = 0
        self.fleet = Fleet(make_policy())
        self.edit(1, 100)
        self.watcher = PolicyWatcher(FilePolicy(path), self.fleet.limiter)
        self.watcher.look()

    def edit(self, version: int, rate: float) -> None:
        self.write(POLICY.format(version=version, rate=rate))

    def write(self, text: str) -> None:
        """By a new file in its place, as deployments do: no reader ever sees half of it."""
        self._edits += 1
        new = self.path.with_name(f"new-{self._edits}")
        new.write_text(text)
        new.replace(self.path)

    @property
    def changes(self) -> list[PolicyChanged]:
        return [fact for fact in self.fleet.sink.events if isinstance(fact, PolicyChanged)]


@pytest.fixture
def edited(tmp_path: Path) -> Edited:
    """Version 1, rate 100, in force."""
    return Edited(tmp_path / "policy.yaml")


def test_the_document_that_the_policy_was_loaded_from_is_not_taken_in_again(tmp_path: Path) -> None:
    """Reading one of 20,000 callers takes a second of CPU, and a gateway has just started."""
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY.format(version=1, rate=100))
    _, digest = begin_with(path)
    fleet = Fleet(make_policy())
    taken: list[int] = []
    fleet.limiter.apply = lambda policy, **_: taken.append(policy.version)  # type: ignore[method-assign]  # counted
    watcher = PolicyWatcher(FilePolicy(path), fleet.limiter, digest=digest)
    watcher.look()
    assert taken == []
    path.write_text(POLICY.format(version=2, rate=100))
    watcher.look()
    assert taken == [2]


def test_an_edit_is_in_force_after_the_next_look(edited: Edited) -> None:
    """A plan that was sold at noon must not wait for the next deployment."""
    assert [] == edited.changes
    edited.edit(2, 50)
    edited.watcher.look()
    verdict = edited.fleet.limiter.check("acme")
    assert (2, 50.0) == (verdict.basis.policy_version, verdict.basis.plan.rate_per_s)
    assert [(2, ())] == [(change.policy_version, change.faults) for change in edited.changes]
    assert 32 == len(edited.changes[0].digest)


@pytest.mark.parametrize("text", ["version: [", "version: 3\n", "", "\xff\xfe"])
def test_an_invalid_file_keeps_the_last_good_policy_and_says_so_once(
    edited: Edited, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One wrong keystroke must not let everybody in, or nobody."""
    edited.write(text)
    for _ in range(3):
        edited.watcher.look()
    assert 1 == edited.fleet.limiter.check("acme").basis.policy_version
    assert [1] == [change.policy_version for change in edited.changes]
    assert edited.changes[0].faults
    assert ["policy_load_error"] == [getattr(record, "action", None) for record in caplog.records]
    edited.edit(4, 10)
    edited.watcher.look()
    assert 4 == edited.fleet.limiter.check("acme").basis.policy_version


def test_the_same_version_with_other_content_is_refused_and_named(edited: Edited) -> None:
    """Two gateways that say version 1 must mean the same."""
    edited.edit(1, 7)
    edited.watcher.look()
    assert 100.0 == edited.fleet.limiter.check("acme").basis.plan.rate_per_s
    assert "with other content" in edited.changes[0].faults[0]


def test_a_file_that_is_gone_is_said_once_and_found_again(edited: Edited) -> None:
    """A mount that comes and goes must not be the end of the policy."""
    edited.path.unlink()
    edited.watcher.look()
    edited.watcher.look()
    assert 1 == len(edited.changes)
    assert "cannot be read" in edited.changes[0].faults[0]
    edited.edit(2, 20)
    edited.watcher.look()
    assert 2 == edited.fleet.limiter.check("acme").basis.policy_version


def test_touching_the_file_changes_nothing(edited: Edited) -> None:
    """A backup that touches every file is no edit."""
    edited.edit(1, 100)
    edited.watcher.look()
    assert [] == edited.changes


def test_a_watcher_stops_with_its_limiter(edited: Edited) -> None:
    """A thread that outlives its limiter would hold what it holds."""
    edited.watcher.start()
    edited.fleet.limiter.at_close(edited.watcher.stop)
    edited.fleet.limiter.close()
    assert not edited.watcher._thread.is_alive()
    edited.watcher.stop()


def test_a_document_that_nobody_foresaw_is_told_of_like_any_other_fault(
    edited: Edited, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever edited the policy must hear that it is not in force, whatever the reason, and the next edit must be."""
    edited.edit(2, 50)

    def unforeseen(*_: object, **__: object) -> None:
        raise KeyError("nobody foresaw this")

    with monkeypatch.context() as broken:
        broken.setattr("enforcer.policies.watching.parse_policy", unforeseen)
        for _ in range(3):
            edited.watcher.look()
    assert ["cannot be read: KeyError('nobody foresaw this')"] == list(edited.changes[0].faults)
    assert {"policy_load_error"} == {getattr(record, "action", None) for record in caplog.records}
    edited.edit(3, 10)
    edited.watcher.look()
    assert [1, 3] == [change.policy_version for change in edited.changes]
