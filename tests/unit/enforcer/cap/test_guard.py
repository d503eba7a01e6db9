"""The cap by the policy, in front of a limiter and of an application: what is refused, recorded, charged and freed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from pydantic import ValidationError

from enforcer.cap.cap import Slot
from enforcer.cap.guard import CapGuard
from enforcer.errors import EnforcerError, InvalidField
from enforcer.http.asgi import Message, RateLimitMiddleware, Receive, Scope, Send
from enforcer.types import Reason, Source, Verdict
from tests.unit.enforcer.harness import Fleet, make_policy

_TWO: dict[str, Any] = {"cap": {"max_in_flight": 2, "latency_ms": 1_500, "reserve_high": 0.5}}
_PAY = {"GET /pay": {"priority": "high"}}


class _Gateway:
    """A middleware around an application that answers when it is told to."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.guard = CapGuard(clock=fleet.clock)
        self.go_on = asyncio.Event()
        self.entered = 0
        self.enters = asyncio.Semaphore(0)
        self.app = RateLimitMiddleware(self._slow, fleet.limiter, cap=self.guard)

    async def get(self, path: str = "/") -> tuple[int, dict[str, str], bytes]:
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        headers = [(b"x-account", b"acme")]
        await self.app({"type": "http", "method": "GET", "path": path, "headers": headers}, _no_receive, send)
        fields = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], fields, b"".join(message.get("body", b"") for message in sent[1:])

    async def _slow(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.entered += 1
        self.enters.release()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        await self.go_on.wait()
        if scope["path"] == "/broken":
            raise RuntimeError("broken by the test")
        await send({"type": "http.response.body", "body": b"b"})


async def _no_receive() -> Message:
    raise AssertionError("nothing reads the body")


async def _until_entered(gateway: _Gateway, count: int) -> None:
    while gateway.entered < count:
        await gateway.enters.acquire()


async def test_a_request_beyond_the_bound_is_refused_recorded_and_charged_nothing() -> None:
    """Its reader must learn that it was the service, not the plan; and support must find it."""
    fleet = Fleet(make_policy(**_TWO))
    gateway = _Gateway(fleet)
    first = asyncio.create_task(gateway.get())
    await _until_entered(gateway, 1)
    held = fleet.sink.verdicts[-1].remaining
    status, headers, body = await gateway.get()
    verdict = fleet.sink.verdicts[-1]
    assert (503, "2") == (status, headers["retry-after"])
    assert (Source.CAP, Reason.CEILING, False, 1_500) == (
        verdict.source, verdict.reason, verdict.allowed, verdict.retry_after_ms,
    )  # fmt: skip
    assert (1, 1, held, 0) == (verdict.seq, verdict.cost, verdict.remaining, verdict.basis.grant_id)
    problem = json.loads(body)
    assert (503, "Service Unavailable", 1_500) == (problem["status"], problem["title"], problem["retry_after_ms"])
    assert "as much to do as it can take" in problem["detail"]
    assert 1 == gateway.entered
    gateway.go_on.set()
    assert (200, b"ab") == (await first)[::2]
    assert 0 == gateway.guard.cap.in_flight
    fleet.limiter.close()
    assert 1 == sum(fleet.sink.spent_by_grant().values())


async def test_priority_of_a_scope_opens_the_reserve() -> None:
    """Payments go on while searches are turned away."""
    gateway = _Gateway(Fleet(make_policy(**_TWO, scopes=_PAY)))
    running = [asyncio.create_task(gateway.get()), asyncio.create_task(gateway.get("/pay"))]
    await _until_entered(gateway, 2)
    assert [503, 503] == [(await gateway.get(path))[0] for path in ("/", "/pay")]
    gateway.go_on.set()
    assert [200, 200] == [status for status, _, _ in await asyncio.gather(*running)]


async def test_slot_is_freed_where_the_limiter_refuses() -> None:
    """A caller beyond its plan must not take the room of others."""
    plans = {"small": {"rate_per_s": 1, "burst": 1}, "large": {"rate_per_s": 1, "burst": 9}}
    fleet = Fleet(make_policy(plans=plans, default_plan="small", scopes={"GET /big": {"cost": 9}}, **_TWO))
    gateway = _Gateway(fleet)
    assert 429 == (await gateway.get("/big"))[0]
    assert 0 == gateway.guard.cap.in_flight


@pytest.mark.parametrize("ending", ["cancelled", "failed"])
async def test_slot_is_freed_however_a_streamed_response_ends(ending: str) -> None:
    """A client that disconnects has its task cancelled in the middle of the stream."""
    gateway = _Gateway(Fleet(make_policy(**_TWO)))
    request = asyncio.create_task(gateway.get("/broken"))
    await _until_entered(gateway, 1)
    assert 1 == gateway.guard.cap.in_flight
    if ending == "cancelled":
        request.cancel()
    gateway.go_on.set()
    with pytest.raises((asyncio.CancelledError, RuntimeError)):
        await request
    assert (0, 0) == (gateway.guard.cap.in_flight, gateway.guard.cap.abandoned)


async def test_slot_is_freed_when_a_request_is_cancelled_while_it_waits_for_the_owner() -> None:
    """The longest wait in front of the application is the likeliest place to be cancelled at."""
    slot = CapGuard().enter(Fleet().limiter, "acme", "default")
    assert isinstance(slot, Slot)
    answer: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(slot.checked(answer))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert 0 == slot._cap.in_flight


def test_guard_follows_the_policy_in_force() -> None:
    """Hot reload: the next request goes by the new bound, and a policy without a cap has none."""
    fleet = Fleet(make_policy(fleet={"copies": 4, "ceiling_per_s": 1_080}, cap={}))
    guard = CapGuard(clock=fleet.clock)
    guard.enter(fleet.limiter, "acme", "default")
    assert 27 == guard.cap.bound
    fleet.limiter.apply(make_policy(version=2, **_TWO))
    guard.enter(fleet.limiter, "acme", "default")
    assert 2 == guard.cap.bound
    fleet.limiter.apply(make_policy(version=3))
    guard.enter(fleet.limiter, "acme", "default")
    assert guard.cap.bound is None


def test_what_an_adaptive_cap_has_learned_outlives_another_version_of_the_policy() -> None:
    """A price change must not send every copy back to its narrowest bound."""
    cap = {"max_in_flight": 100, "adaptive": True}
    fleet = Fleet(make_policy(cap=cap))
    guard = CapGuard(clock=fleet.clock)
    for _ in range(200):
        slot = guard.enter(fleet.limiter, "acme", "default")
        assert isinstance(slot, Slot)
        fleet.clock.advance(0.05)
        slot.release(served=True)
    learned = guard.cap._adapting
    assert learned is not None
    assert 50_000_000 == learned.floor_ns
    fleet.limiter.apply(make_policy(version=2, cap=cap))
    guard.enter(fleet.limiter, "acme", "default")
    assert learned is guard.cap._adapting


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"cap": {}}, "has no bound"),
        ({"cap": {"max_in_flight": 0}}, "max_in_flight"),
        ({"cap": {"max_in_flight": 9, "reserve_high": 0.5, "reserve_normal": 0.5}}, "together below 1"),
        ({"scopes": {"GET /": {"priority": "urgent"}}}, "priority"),
    ],
)
def test_a_policy_whose_cap_is_wrong_is_refused(fields: dict[str, Any], fault: str) -> None:
    """A bound that is none, or a reserve that is everything, shows itself only in the flood."""
    with pytest.raises(ValidationError, match=fault):
        make_policy(**fields)


def test_refuse_for_cap_checks_what_it_records() -> None:
    """A record of what no `check` would take could not be read."""
    limiter = Fleet().limiter
    with pytest.raises(InvalidField, match="caller"):
        limiter.refuse_for_cap("", wait_ms=1)
    with pytest.raises(InvalidField, match="cost"):
        limiter.refuse_for_cap("acme", cost=-1, wait_ms=1)
    limiter.close()
    with pytest.raises(EnforcerError, match="closed"):
        limiter.refuse_for_cap("acme", wait_ms=1)
