"""The limiter on a real server whose answers are cut, spoiled, late or unasked: degraded once, and exact after it."""

from __future__ import annotations

import pytest
import redis

from enforcer.limiting.limiter import Limiter
from enforcer.messages import Answer, Ask
from enforcer.owners.addresses import owners_from_url
from enforcer.owners.redis import RedisOwner
from enforcer.types import Source
from tallygate.engines.valkey import Valkey
from tests.integration.enforcer.copies import PLAN, assert_buckets_hold_the_rest, check_at_once, limiter_on
from tests.processes import wait_until
from tests.proxy import Fault, proxied

ASK_MS = 300
CALLERS = [f"caller-{number}" for number in range(24)]


def _served(limiter: Limiter, callers: list[str]) -> bool:
    return all(limiter.check(caller).source is not Source.DEGRADED for caller in callers)


@pytest.mark.services
@pytest.mark.parametrize("fault", Fault)
def test_a_broken_answer_degrades_once_and_settles_exactly_once(fresh_valkey: Valkey, fault: Fault) -> None:
    """Some asks of the round trip took effect and nobody heard: those tokens come home, and none is spent twice."""
    with proxied(fresh_valkey.port) as proxy:
        owners = owners_from_url(f"redis://127.0.0.1:{proxy.port}", timeout_s=ASK_MS / 1e3)
        with limiter_on(owners, ask_ms=ASK_MS) as (limiter, sink):
            assert _served(limiter, CALLERS[:12])
            # In the first half of the second answer: with what stands in its place it is still no whole one.
            proxy.arm(fault, after=120)
            while proxy.is_armed:
                verdicts = check_at_once(limiter, CALLERS)
            assert all(verdict.allowed for verdict in verdicts.values())
            wait_until(lambda: not limiter.degraded, 10, what="the recovery")
            wait_until(lambda: _served(limiter, CALLERS), 10, what="every caller's grant after it")
        assert [change.entered for change in sink.changes] == [True, False]
        assert sink.changes[0].cause.startswith("no answer: ")
    assert_buckets_hold_the_rest(fresh_valkey.url, sink, CALLERS)


@pytest.mark.services
def test_a_connection_that_was_closed_while_idle_is_opened_again_unnoticed(fresh_valkey: Valkey) -> None:
    """Servers and balancers end what was idle for minutes: the next request must not be decided without the owner."""
    client = redis.Redis.from_url(fresh_valkey.url)
    with limiter_on(owners_from_url(fresh_valkey.url, timeout_s=2.0), ask_ms=2_000) as (limiter, sink):
        for caller in CALLERS[:4]:
            assert limiter.check(caller).source is Source.SHARED
            client.client_kill_filter(_type="normal", skipme=True)
    assert sink.changes == []
    client.close()
    assert_buckets_hold_the_rest(fresh_valkey.url, sink, CALLERS)


@pytest.mark.services
def test_words_that_nobody_asked_for_are_never_taken_for_an_answer(fresh_valkey: Valkey) -> None:
    """Else every answer from then on belongs to the ask before it: callers would spend each other's grants."""
    with proxied(fresh_valkey.port) as proxy:
        owner = RedisOwner(f"redis://127.0.0.1:{proxy.port}", timeout_s=2.0)
        owner.probe()
        proxy.say(b"+OK\r\n")
        connection = owner._connection
        wait_until(lambda: connection is not None and connection.can_read(), 5, what="the words' arrival")
        asks = [Ask(caller, "rate", PLAN, "gw-1/1", 1, (), n, 0, 0.0, n, 0.0) for n, caller in enumerate(CALLERS)]
        answered = [outcome.grant for outcome in owner.ask(asks) if isinstance(outcome, Answer)]
        assert [grant.size if grant else 0 for grant in answered] == list(range(len(CALLERS)))
        owner.close()
