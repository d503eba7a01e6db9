"""What a server asks for, and what a client's retries make of it."""

from __future__ import annotations

import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from enforcer.clients import Retries, RetryBudget, RetryCounts, RetryRules
from enforcer.clients.asked import asked_s
from enforcer.clock import ManualClock
from enforcer.core.headers import header_fields
from enforcer.errors import InvalidField
from tests.unit.enforcer.harness import Fleet

NOW = 784_111_777.0  # Sun, 06 Nov 1994 08:49:37 GMT


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after": " 0 "}, 0),
        ({"retry-after": "1" * 5_000}, math.inf),
        ({"retry-after": "Sun, 06 Nov 1994 08:49:47 GMT"}, 10),
        ({"retry-after": "Sunday, 06-Nov-94 08:49:47 GMT"}, 10),
        ({"retry-after": "Sun Nov  6 08:49:47 1994"}, 10),
        ({"retry-after": "Sun, 06 Nov 1994 08:49:27 GMT"}, 0),
        ({"retry-after": "Sun, 06 Nov 1994 08:49:47 GMT", "date": "Sun, 06 Nov 1994 08:49:17 GMT"}, 30),
        ({"retry-after": "Sun, 06 Nov 1994 08:49:47 GMT", "date": "today"}, 10),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "1.5"}, None),
        ({"retry-after": "٣"}, None),
        ({"retry-after": "Sun, 99 Nov 1994 08:49:47 GMT"}, None),
        ({"retry-after": "Sun, 06 Nov 99999 00:00:00 GMT"}, None),
        ({"retry-after": "soon", "ratelimit": '"rate";r=0;t=4'}, 4),
        ({"retry-after": "2", "ratelimit": '"rate";r=0;t=4'}, 2),
        ({"ratelimit": '"rate";r=0;t=4, "day";r=3;t=90;pk=:YQ==:'}, 90),
        ({"ratelimit": '"a;t=99,\\";t=98";r=0 ; t=4'}, 4),
        ({"ratelimit": '"rate";r=0;at=9;t=-4;t=x;t=1.5'}, None),
        ({"ratelimit": '"rate";r=0'}, None),
    ],
)
def test_a_server_is_understood_or_not_obeyed(headers: dict[str, str], seconds: float | None) -> None:
    """A time read too early is a second refusal; one made up holds a client up for nothing."""
    assert seconds == asked_s(headers, now_unix_s=NOW)


def _retries(clock: ManualClock | None = None, **given: Any) -> Retries:
    return Retries(clock=clock or ManualClock(), chance=lambda: 0.5, **given)


def test_our_own_refusals_are_understood_and_a_never_is_not_sent_again() -> None:
    """What the middleware says is what the helper reads: where no wait helps there is no time to wait for."""
    limiter = Fleet().limiter
    verdicts = [limiter.check("c") for _ in range(5_000)]
    refused = next(verdict for verdict in verdicts if not verdict.allowed)
    never = limiter.check("c", cost=10**6)
    assert (False, -1) == (never.allowed, never.retry_after_ms)
    asked = {}
    for name, verdict in (("refused", refused), ("never", never)):
        headers = {key.decode(): value.decode() for key, value in header_fields(verdict, limiter.rooms(verdict))}
        asked[name] = Retries(rules=RetryRules(deadline_s=1e9)).begin("GET").after_answer(429, headers)
    assert asked["refused"] is not None
    assert refused.retry_after_ms / 1e3 <= asked["refused"]
    assert asked["never"] is None


def test_every_refusal_is_counted_once() -> None:
    """Counters that do not add up explain nothing."""
    retries = _retries()
    assert 3.1 == retries.begin("get").after_answer(429, {"retry-after": "3"})
    assert retries.begin("GET").after_answer(429, {}) is None
    assert retries.begin("POST").after_answer(503, {"retry-after": "3"}) is None
    assert retries.begin("PUT", replayable=False).after_answer(503, {}) is None
    assert retries.begin("GET", marked=False).after_answer(503, {}) is None
    assert 0.1 == retries.begin("POST", marked=True).after_answer(503, {})
    assert retries.begin("GET").after_answer(500, {"retry-after": "1"}) is None
    assert retries.begin("GET").after_error() is None
    assert RetryCounts(requests=8, refusals=6, errors=1, retries=2, unsafe=3, given_up=2) == retries.counts
    assert 0.1 == _retries(connection_errors=True).begin("GET").after_error()


def test_attempts_and_deadline_end_a_request() -> None:
    """A client that never gives up is an outage of its own callers."""
    clock = ManualClock()
    attempts = _retries(clock, rules=RetryRules(attempts=3)).begin("GET")
    assert [0.1, 0.2, None] == [attempts.after_answer(503, {}) for _ in range(3)]
    late = _retries(clock, rules=RetryRules(deadline_s=5)).begin("GET")
    clock.advance(2)
    assert late.after_answer(503, {"retry-after": "3"}) is None
    assert late.after_answer(503, {"retry-after": "2"}) == 2.1


def test_threads_that_share_one_budget_stay_within_it() -> None:
    """Each thread with a budget of its own multiplies what a saturated server has to answer."""
    retries = _retries(budget=RetryBudget(share=0, floor=100))
    was = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            waits = list(pool.map(lambda _: retries.begin("GET").after_answer(503, {}), range(2_000)))
    finally:
        sys.setswitchinterval(was)
    assert 100 == sum(wait is not None for wait in waits)
    assert RetryCounts(requests=2_000, refusals=2_000, retries=100, given_up=1_900) == retries.counts


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("attempts", lambda: RetryRules(attempts=0)),
        ("deadline_s", lambda: RetryRules(deadline_s=math.nan)),
        ("base_s", lambda: RetryRules(base_s=-1)),
        ("most_jitter_s", lambda: RetryRules(most_jitter_s=math.inf)),
        ("share", lambda: RetryBudget(share=1.5)),
        ("floor", lambda: RetryBudget(floor=-1)),
    ],
)
def test_a_wrong_number_is_refused_by_name(name: str, make: Any) -> None:
    """Found at the first refusal in production, it would be too late."""
    with pytest.raises(InvalidField, match=f"^{name} is "):
        make()


@pytest.mark.parametrize("library", ["httpx", "requests"])
def test_a_missing_library_is_named_and_missed_only_where_it_is_used(library: str) -> None:
    """A gateway imports the package with neither of them installed."""
    code = (
        f"import sys; sys.modules['httpx'] = sys.modules['requests'] = None; import enforcer.clients\n"
        f"try: import enforcer.clients.for_{library}\n"
        f"except ImportError as fault: print(fault)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"enforcer.clients.for_{library} needs {library}: pip install 'tallygate[{library}]'" == said.stdout.strip()
