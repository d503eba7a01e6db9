"""A client's retries: never early, never past the deadline, never more than the budget."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from enforcer.clients.core import RetryBudget, RetryRules, wait_s

_asked = st.one_of(st.none(), st.floats(0, 60))


@given(
    status=st.sampled_from([200, 429, 500, 503]),
    asked=_asked,
    elapsed=st.floats(0, 40),
    attempt=st.integers(1, 6),
    chance=st.floats(0, 0.999),
)
def test_a_wait_is_never_early_and_never_past_the_deadline(
    status: int, asked: float | None, elapsed: float, attempt: int, chance: float
) -> None:
    """Retrying before Retry-After is a second refusal for certain."""
    rules = RetryRules()
    wait = wait_s(
        rules, RetryBudget(), status=status, retry_after_s=asked, attempt=attempt, elapsed_s=elapsed, chance=chance
    )
    if wait is not None:
        assert status in (429, 503)
        assert status == 503 or asked is not None
        assert attempt < rules.attempts
        assert (asked or 0) <= wait
        assert elapsed + wait <= rules.deadline_s + 1e-6
    elif status == 503 and attempt < rules.attempts:
        assert elapsed + (asked or 0) >= rules.deadline_s - 1e-6


@given(steps=st.lists(st.booleans(), max_size=400), floor=st.integers(1, 10))
def test_retries_stay_within_the_budget_for_any_sequence(steps: list[bool], floor: int) -> None:
    """A saturated server gets at most a tenth more, not a multiple."""
    budget, requests, retries = RetryBudget(floor=floor), 0, 0
    for is_request in steps:
        if is_request:
            budget.request_made()
            requests += 1
        else:
            retries += budget.take()
        assert retries <= floor + 0.1 * requests + 1e-6


def test_a_hundred_clients_at_a_saturated_server_send_a_tenth_more_with_the_budget() -> None:
    """Without it each request becomes four."""
    sent = {True: 0, False: 0}
    for bounded in sent:
        for _client in range(100):
            budget = RetryBudget(floor=10 if bounded else 10**9)
            for _request in range(200):
                budget.request_made()
                attempt, elapsed = 1, 0.0
                while (
                    wait := wait_s(
                        RetryRules(),
                        budget,
                        status=503,
                        retry_after_s=1,
                        attempt=attempt,
                        elapsed_s=elapsed,
                        chance=0.5,
                    )
                ) is not None:
                    attempt, elapsed = attempt + 1, elapsed + wait
                sent[bounded] += attempt
    assert 100 * 200 < sent[True] <= 100 * (200 * 1.1 + 10)
    assert 100 * 200 * 4 == sent[False]
