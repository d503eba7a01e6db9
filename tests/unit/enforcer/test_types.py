"""Verdicts and what they stand on."""

from __future__ import annotations

import pytest

from enforcer.limiting import directory
from enforcer.types import NEVER_NS, Basis, Plan, Reason, Source, Standing, Terms, Verdict, outcome_code
from tests.unit.enforcer.harness import Fleet, make_policy

_BASIS = Basis(Standing("acme", Terms("rate", Plan("standard", 100.0, 200), 3)), "GET /", 9, 4)


@pytest.mark.parametrize(
    ("ready_at_ns", "retry_after_ms"),
    [(7_000_000, 2), (7_000_001, 3), (5_000_001, 1), (5_000_000, 1), (NEVER_NS, -1), (86_400_005_000_000, 86_400_000)],
)
def test_retry_after_is_rounded_up_and_never_names_no_time(ready_at_ns: int, retry_after_ms: int) -> None:
    """Earlier than true, and the client that obeys is refused again."""
    refused = Verdict(0, 5_000_000, _BASIS, False, outcome_code(Source.LOCAL, Reason.SPENT), 1, 0, ready_at_ns)
    assert retry_after_ms == refused.retry_after_ms


def test_an_admission_has_nothing_to_wait_for() -> None:
    """Zero is what the record and the headers take for "now"."""
    assert 0 == Verdict(0, 5_000_000, _BASIS, True, 0, 1, 7, 0).retry_after_ms


def test_a_verdict_shows_itself_in_one_line_with_names() -> None:
    """It is what a newcomer prints first: numbers for source and reason would say nothing."""
    refused = Verdict(7, 5, _BASIS, False, outcome_code(Source.SHARED, Reason.SPENT), 1, 0, 7_000_005)
    assert (
        str(refused)
        == repr(refused)
        == (
            "Verdict(allowed=False, source=SHARED, reason=SPENT, caller='acme', scope='GET /', limit='rate', "
            "plan='standard', policy_version=3, cost=1, remaining=0, retry_after_ms=7, grant_id=9, seq=7, at_ns=5)"
        )
    )


def test_a_basis_reads_like_its_standing() -> None:
    """Users see one thing; that it is split is for the encoder."""
    standing = _BASIS.standing
    assert ("acme", "GET /", "rate", standing.terms.plan, 3) == (
        _BASIS.caller, _BASIS.scope, _BASIS.limit, _BASIS.plan, _BASIS.policy_version,
    )  # fmt: skip
    assert (9, 4) == (_BASIS.grant_id, _BASIS.k)


def test_what_outlives_a_grant_is_one_object_for_all_its_bases() -> None:
    """The log finds names by identity: a copy for each grant would cost it the reading of each."""
    fleet = Fleet(make_policy(rate_per_s=10, burst=4))
    for _ in range(60):
        fleet.advance(0.1)
        for caller in ("acme", "other"):
            fleet.limiter.check(caller, "".join(["GET", " /"]))
    bases = [verdict.basis for verdict in fleet.sink.verdicts]
    assert len({basis.grant_id for basis in bases}) > 2
    assert 2 == len({id(basis.standing) for basis in bases}), "one for each caller"
    assert 1 == len({id(basis.standing.terms) for basis in bases}), "one for the plan"
    assert 1 == len({id(basis.scope) for basis in bases}), "whatever string a request came with"


def test_made_up_scopes_do_not_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scope may come from outside; what is kept for the sake of identity is bounded."""
    monkeypatch.setattr(directory, "_MOST_SCOPES", 10)
    fleet = Fleet()
    for number in range(50):
        fleet.limiter.check("acme", f"GET /{number}")
    assert len(fleet.limiter._directory._scopes) <= 11
