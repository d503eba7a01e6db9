"""Limited functions: they run as they did, or not at all."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator

import pytest

from enforcer.decorators import Refused, limited
from enforcer.errors import ConfigError
from tests.unit.enforcer.harness import Fleet, make_policy


def test_a_refused_call_never_runs_and_says_why() -> None:
    """Whoever catches it must be able to tell when to come back."""
    fleet, ran = Fleet(make_policy(rate_per_s=1, burst=2)), []

    @limited(fleet.limiter, caller=lambda who, **_: who, scope="mail")
    def send(who: str, *, text: str) -> str:
        """Send."""
        ran.append(who)
        return text

    assert ["a", "b"] == [send("acme", text="a"), send("acme", text="b")]
    with pytest.raises(Refused, match="the burst of 2 was spent") as refused:
        send("acme", text="c")
    assert 1_000 == refused.value.verdict.retry_after_ms
    assert "c" == send("other", text="c")
    assert ["acme", "acme", "other"] == ran
    assert ("send", "Send.", ["who", "text"]) == (send.__name__, send.__doc__, list(inspect.signature(send).parameters))
    assert {"mail"} == {verdict.basis.scope for verdict in fleet.sink.verdicts}


async def test_a_coroutine_is_charged_when_it_is_awaited() -> None:
    """One that is made and dropped has done nothing, so it costs nothing."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=5))

    @limited(fleet.limiter, caller="job", cost=lambda number: number)
    async def work(number: int) -> int:
        return number * 2

    work(1).close()  # type: ignore[attr-defined, unused-ignore]  # typed as any awaitable
    assert [] == fleet.sink.verdicts
    assert 8 == await work(4)
    with pytest.raises(Refused):
        await work(4)
    assert inspect.iscoroutinefunction(work)


def test_an_async_generator_is_refused_at_once() -> None:
    """Its call can wait for nothing, so the check would block the event loop."""

    async def rows() -> AsyncIterator[int]:
        yield 1

    with pytest.raises(ConfigError, match="is an async generator"):
        limited(Fleet().limiter, caller="job")(rows)
