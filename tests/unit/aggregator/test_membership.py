"""The recorder's place in its group: it waits, says for what, joins anew, and never disturbs those who have work."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from aggregator.broker import LogUnavailable
from aggregator.group import leader
from aggregator.group.joining import PATIENCE_SESSIONS, Joining
from aggregator.group.leader import join_request
from aggregator.group.view import GroupNow
from aggregator.recorder.membership import Membership

_SESSION_S = 10.0
_PATIENCE_S = PATIENCE_SESSIONS * _SESSION_S
_DEAD = "rdkafka-0169ebfa-23e5-41d6-a26f-fdee6b58705c"
_FORMING = GroupNow("being formed", _DEAD, forming=True, members=None)
_BUSY = GroupNow("waiting for its members", None, forming=False, members=2)


class _Consumer:
    """A client whose group answers when the test says so."""

    def __init__(self) -> None:
        self.assign: Callable[[Any, list[Any]], None]
        self.revoke: Callable[[Any, list[Any]], None]

    def subscribe(self, _topics: list[str], *, on_assign: Any, on_revoke: Any, on_lost: Any) -> None:
        assert on_revoke == on_lost
        self.assign, self.revoke = on_assign, on_revoke

    def memberid(self) -> str:
        return "rdkafka-me"


class _World:
    """A clock, a broker, and whoever was put out of the group."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, now: GroupNow | None) -> None:
        self.now_s = 1_000.0
        self.now = now
        self.bootstrap, self.group = "nowhere:1", "recorders"
        self.consumers: list[_Consumer] = []
        self.ended: list[tuple[str, str, str]] = []
        self.revoked = 0
        monkeypatch.setattr(leader, "end_leader", self._end)
        self.member = Membership(
            self._make,  # type: ignore[arg-type]  # only what a membership calls is there
            self,  # type: ignore[arg-type]  # likewise
            ["t"],
            session_timeout_ms=int(1_000 * _SESSION_S),
            on_revoked=self._revoke,
            log=logging.getLogger("test"),
            now_s=lambda: self.now_s,
        )

    def look(self) -> GroupNow:
        if self.now is None:
            raise LogUnavailable("nowhere:1 does not answer")
        return self.now

    def after(self, seconds: float) -> None:
        self.now_s += seconds
        self.member.tend()

    def _make(self) -> _Consumer:
        self.consumers.append(_Consumer())
        return self.consumers[-1]

    def _end(self, bootstrap: str, group: str, leader: str, _topics: Sequence[str], **_: int) -> None:
        self.ended.append((bootstrap, group, leader))

    def _revoke(self) -> None:
        self.revoked += 1


def test_member_that_is_given_nothing_stands_by_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second recorder beside one that has all partitions would else make the first lose them every minute."""
    world = _World(monkeypatch, _BUSY)
    world.after(_PATIENCE_S - 1)
    world.consumers[0].assign(None, [])
    world.after(100 * _PATIENCE_S)
    assert 1 == len(world.consumers)


def test_member_that_is_not_answered_says_so_and_joins_anew(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A recorder that records nothing must not look like one that has nothing to do."""
    world = _World(monkeypatch, _BUSY)
    world.after(_PATIENCE_S - 1)
    assert (1, "") == (len(world.consumers), caplog.text)
    world.after(1)
    assert (2, 1, []) == (len(world.consumers), world.revoked, world.ended)
    assert "no place in the group recorders for 30 s: it is waiting for its members, members: 2" in caplog.text
    world.after(2 * _PATIENCE_S - 1)
    assert 2 == len(world.consumers), "each time in a row it waits for twice as long"
    world.after(1)
    assert 3 == len(world.consumers)


def test_member_whose_partitions_were_taken_away_waits_for_an_answer_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rebalance that never ends silences the record as well as a first join does."""
    world = _World(monkeypatch, _BUSY)
    world.consumers[0].assign(None, [object()])
    world.after(100 * _PATIENCE_S)
    world.consumers[0].revoke(None, [object()])
    world.after(_PATIENCE_S - 1)
    assert 1 == len(world.consumers)
    world.after(1)
    assert 2 == len(world.consumers)


def test_member_ends_the_place_of_a_leader_that_is_not_answering(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The embedded broker would wait for that leader for ever, whoever joins."""
    world = _World(monkeypatch, _FORMING)
    world.after(_PATIENCE_S)
    assert [("nowhere:1", "recorders", _DEAD)] == world.ended
    assert _DEAD in caplog.text


def test_member_waits_for_a_broker_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """While the broker is away, there is no group that could be joined anew."""
    world = _World(monkeypatch, None)
    world.after(_PATIENCE_S)
    assert 1 == len(world.consumers)
    assert "nowhere:1 does not answer; waiting for it" in caplog.text


def test_group_that_is_stable_or_led_by_oneself_has_no_leader_to_end() -> None:
    """Only a group that is not formed can be waiting for its leader."""
    assert _FORMING.leader_other_than("me") == _DEAD
    assert _FORMING.leader_other_than(_DEAD) is None
    assert GroupNow("stable", _DEAD, forming=False, members=None).leader_other_than("me") is None
    assert _BUSY.leader_other_than("me") is None


def test_joining_is_patient_again_once_it_was_answered() -> None:
    """What was slow a day ago must not be noticed late today."""
    joining = Joining(session_s=1, now_s=0)
    assert [joining.overdue_s(now_s) for now_s in (2.9, 3.0, 3.1, 8.9, 9.0)] == [None, 3.0, None, None, 9.0]
    joining.answered()
    assert (joining.joined, joining.overdue_s(1_000)) == (True, None)
    joining.lost(1_000)
    joining.lost(1_002)
    assert [joining.overdue_s(now_s) for now_s in (1_002.9, 1_003.0)] == [None, 3.0]


def test_join_request_has_the_bytes_of_the_protocol() -> None:
    """Written by hand, for no client lets one choose a member's name: version 2 of JoinGroup, every length right."""
    subscription = b"\0\0" + b"\0\0\0\1\0\1t" + b"\0\0\0\0"
    named = b"".join(
        len(name).to_bytes(2, "big") + name + len(subscription).to_bytes(4, "big") + subscription
        for name in (b"range", b"roundrobin", b"faust")
    )
    body = (
        b"\0\x0b\0\2\0\0\0\1\0\x09tallygate"  # JoinGroup, version 2, correlation 1, client
        b"\0\1g\0\0\x0b\xb8\0\0\x0b\xb8"  # group, session and rebalance timeout
        b"\0\3m-1\0\x08consumer\0\0\0\3"
    ) + named
    assert join_request("g", "m-1", ["t"], session_timeout_ms=3_000) == len(body).to_bytes(4, "big") + body
