"""A Faust app's place in its group: it is waited for, not for ever, and left without harm to the others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aggregator.broker import LogUnavailable
from aggregator.group import leader as leading
from aggregator.group.joining import PATIENCE_SESSIONS
from aggregator.group.view import GroupNow
from aggregator.worker import place
from aggregator.worker.place import FaustPlace

_SESSION_S = 10.0
_DEAD = "faust-0.15-0169ebfa-23e5-41d6-a26f-fdee6b58705c"
_FORMING = GroupNow("being formed", _DEAD, forming=True, members=None)
_BUSY = GroupNow("waiting for its members", None, forming=False, members=2)


class _Signal:
    """One of the app's signals."""

    def __init__(self) -> None:
        self.send: Callable[[], Awaitable[None]]

    def connect(self, handler: Callable[..., Awaitable[None]], *, weak: bool) -> None:
        assert not weak
        self.send = handler


class _World:
    """An app, a broker, and a clock that goes on by a second whenever it is looked at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *said: GroupNow | None) -> None:
        self.bootstrap, self.group = "nowhere:1", "workers"
        self.on_partitions_assigned, self.on_partitions_revoked = _Signal(), _Signal()
        self.now_s = 0.0
        self.late = asyncio.Event()
        self.said = list(said)
        self.ended: list[tuple[float, str]] = []
        monkeypatch.setattr(place, "_POLL_S", 0)
        monkeypatch.setattr(
            leading, "end_leader", lambda _b, _g, leader, *_, **__: self.ended.append((self.now_s, leader))
        )
        app: Any = self
        self.place = FaustPlace(
            app,
            app,
            "t",
            session_timeout_ms=int(1_000 * _SESSION_S),
            log=logging.getLogger("test"),
            now_s=self._tick,
        )

    def look(self) -> GroupNow:
        """What it says next; the last for ever."""
        now = self.said.pop(0) if len(self.said) > 1 else self.said[0]
        if now is None:
            raise LogUnavailable("nowhere:1 does not answer")
        return now

    def _tick(self) -> float:
        self.now_s += 1
        if self.now_s >= 100 * PATIENCE_SESSIONS * _SESSION_S:
            self.late.set()
        return self.now_s


async def test_worker_that_is_not_answered_ends_for_a_new_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that counts nothing must not stay behind looking alive."""
    world = _World(monkeypatch, _BUSY)
    why = await asyncio.wait_for(world.place.tend(), 20)
    assert "the group workers does not answer" in why
    # Three sessions, then twice as many, then twice as many again.
    assert world.now_s == pytest.approx(7 * PATIENCE_SESSIONS * _SESSION_S, abs=5)
    assert 3 == caplog.text.count("no place in the group workers")
    assert [] == world.ended


async def test_worker_ends_the_place_of_a_leader_that_twice_has_dealt_out_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The embedded broker would wait for it for ever; one that is only slow is left alone."""
    world = _World(monkeypatch, _FORMING)
    await asyncio.wait_for(world.place.tend(), 20)
    assert {_DEAD} == {leader for _, leader in world.ended}
    patience_s = PATIENCE_SESSIONS * _SESSION_S
    assert [at_s for at_s, _ in world.ended] == pytest.approx([3 * patience_s, 7 * patience_s], abs=5)


async def test_worker_that_is_given_nothing_stands_by(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """More workers than partitions is no fault, and no reason to disturb those that work."""
    world = _World(monkeypatch, _BUSY)
    tending = asyncio.create_task(world.place.tend())
    await world.on_partitions_assigned.send()
    await asyncio.wait_for(world.late.wait(), 20)
    assert (False, "") == (tending.done(), caplog.text)
    await world.on_partitions_revoked.send()
    assert "does not answer" in await asyncio.wait_for(tending, 20)


async def test_worker_waits_for_a_broker_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is away for a night must not end its workers: they count on once it is back."""
    world = _World(monkeypatch, None)
    tending = asyncio.create_task(world.place.tend())
    await asyncio.wait_for(world.late.wait(), 20)
    assert not tending.done()
    tending.cancel()


@pytest.mark.parametrize(
    ("said", "until_s", "may"),
    [((_BUSY,), 0, True), ((_FORMING, _FORMING, _BUSY), 60, True), ((_FORMING,), 20, False), ((None,), 60, False)],
)
async def test_worker_leaves_only_a_group_that_does_not_need_it(
    monkeypatch: pytest.MonkeyPatch, said: tuple[GroupNow | None, ...], until_s: float, may: bool
) -> None:
    """A leader that leaves while the group is being formed is waited for, for ever."""
    assert may is await _World(monkeypatch, *said).place.may_leave(until_s)
