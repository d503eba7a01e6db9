"""Rows of the record sorted into buckets, and causes found by where tokens lay: without a database."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from aggregator.core.fairness.buckets import Held, TermsBook, Unjudged, buckets_of
from aggregator.core.fairness.causes import Cause, Holding, counted, first_causes, with_grants
from aggregator.core.fairness.layout import MINUTE_US, Carried, Counts
from aggregator.core.fairness.replay import BEST
from aggregator.core.fairness.rows import Rows, rows_of
from enforcer.types import Reason, Source, outcome_code
from tests.replaying import ADMITTED, SPENT, START_US

TEN = Held(10.0, 20, "")
MINUTE = START_US // MINUTE_US


def found(*rows: dict[str, Any]) -> Rows:
    """Decisions as the query finds them; what a row does not say is the same for all."""
    usual = {
        "caller": "acme", "limit": "rate", "plan": "ten", "copy_id": "gw-1", "policy_version": 1, "at_us": 0,
        "cost_tokens": 1, "code": ADMITTED, "retry_after_ms": 0, "grant_id": 7, "charged_subjects": [],
        "charged_limits": [], "scope": "GET /", "epoch": 1,
    }  # fmt: skip
    types = {
        **dict.fromkeys(("caller", "limit", "plan", "copy_id", "scope"), pa.dictionary(pa.int32(), pa.string())),
        **dict.fromkeys(("policy_version", "cost_tokens"), pa.uint32()),
        **dict.fromkeys(("grant_id", "epoch", "seq"), pa.uint64()),
        "code": pa.uint8(),
        **dict.fromkeys(("charged_subjects", "charged_limits"), pa.list_(pa.string())),
        "charged_grants": pa.list_(pa.uint64()),
        "at_us": pa.int64(),
        "retry_after_ms": pa.int32(),
    }
    whole: list[dict[str, Any]] = [
        {**usual, "seq": seq, **row, "at_us": START_US + row.get("at_us", 0)} for seq, row in enumerate(rows)
    ]
    for row in whole:
        row.setdefault("charged_grants", [9] * len(row["charged_limits"]))
    return rows_of(pa.table({name: pa.array([row[name] for row in whole], kind) for name, kind in types.items()}))


def book_of(*callers: str, held: Held = TEN, limit: str = "rate") -> TermsBook:
    """Everybody on the same terms."""
    book = TermsBook()
    for caller in callers:
        book.add(caller, limit, 1, "ten", held)
    return book


def test_each_caller_has_one_bucket_and_other_limits_refusals_are_not_offered_to_it() -> None:
    """All limits must admit or none is charged: what another refused took nothing here."""
    rows = found({}, {"code": SPENT, "limit": "tenant"}, {"caller": "beta"}, {"caller": "beta", "code": SPENT})
    buckets = buckets_of(rows, book_of("acme", "beta"))
    assert [("acme", "rate"), ("beta", "rate")] == buckets.keys
    assert [0, 1, 3] == buckets.decided.starts.tolist()
    assert [0, 2, 3] == buckets.row.tolist()
    assert [Unjudged("acme", "tenant", MINUTE, admitted=0, refused=1)] == buckets.unjudged


def test_callers_without_terms_are_counted_and_leave_the_others_alone() -> None:
    """Judging by terms that nobody recorded would be guessing."""
    rows = found({}, {"caller": "old"}, {"caller": "old", "code": SPENT, "at_us": MINUTE_US}, {"caller": "zeta"})
    buckets = buckets_of(rows, book_of("acme", "zeta"))
    assert [("acme", "rate"), ("zeta", "rate")] == buckets.keys
    assert [0, 3] == buckets.row.tolist()
    assert [Unjudged("old", "rate", MINUTE, 1, 0), Unjudged("old", "rate", MINUTE + 1, 0, 1)] == buckets.unjudged


def test_limit_of_the_callers_own_is_offered_what_was_charged_to_it_and_what_it_refused() -> None:
    """Charges to others' buckets under the same name are none of it."""
    own, shared = {"charged_limits": ["search"], "charged_subjects": ["acme"]}, {
        "charged_limits": ["search"], "charged_subjects": ["books"],
    }  # fmt: skip
    rows = found(own, {}, own, {"code": SPENT, "limit": "search"}, {"caller": "beta", **shared},
                 {"caller": "beta", "code": SPENT, "limit": "search"})  # fmt: skip
    book = book_of("acme", "beta")
    book.add("acme", "search", 1, "ten", Held(1.0, 5, ""))
    book.add("beta", "search", 1, "ten", Held(1.0, 5, ""))
    buckets = buckets_of(rows, book)
    assert [("acme", "rate"), ("beta", "rate"), ("acme", "search")] == buckets.keys
    begin, end = buckets.decided.starts[2:4].tolist()
    assert [0, 2, 3] == buckets.row[begin:end].tolist()
    assert [5.0] * 3 == buckets.decided.bursts[buckets.decided.terms[begin:end]].tolist()
    assert [("beta", "search")] == [(one.caller, one.limit) for one in buckets.unjudged]
    assert 5.0 == buckets.fills_in_s(buckets.keys.index(("acme", "search")))


def test_quota_is_never_judged_as_a_bucket() -> None:
    """Its amount does not refill."""
    own = {"charged_limits": ["day"], "charged_subjects": ["acme"]}
    book = book_of("acme")
    book.add("acme", "day", 1, "ten", Held(0.01, 1_000, "day"))
    buckets = buckets_of(found(own, {"code": SPENT, "limit": "day"}), book)
    assert [("acme", "rate")] == buckets.keys
    assert [Unjudged("acme", "day", MINUTE, 0, 1)] == buckets.unjudged


@pytest.mark.parametrize("rate", [0.0, -0.0, -5.0, 1e-300, float("inf"), float("nan")])
def test_rate_that_no_policy_can_have_is_counted_and_not_judged(rate: float) -> None:
    """The record of earlier versions may hold some; a replay of it stopped the settler at every start."""
    book = book_of("a", held=Held(rate, 10, ""))
    book.add("a", "search", 1, "pro", Held(rate, 5, ""))
    rows = found({"caller": "a"}, {"caller": "a", "limit": "search", "code": SPENT})
    buckets = buckets_of(rows, book, {("a", "search")})
    assert [] == buckets.keys
    assert 2 == sum(one.offered for one in buckets.unjudged)


def test_terms_are_those_of_the_version_and_plan_or_of_the_version_before() -> None:
    """A further limit's terms are on record only for versions in which it refused."""
    book = TermsBook()
    for version, burst in ((2, 20), (4, 40)):
        book.add("acme", "search", version, "ten", Held(1.0, burst, ""))
    told = [book.find("acme", "search", version, None) for version in (1, 2, 3, 4, 9)]
    assert [20, 20, 20, 40, 40] == [held.burst for held in told if held is not None]
    assert book.find("beta", "search", 2, None) is None


def test_rows_of_some_callers_keep_their_charges() -> None:
    """Too many callers to name in a question are sorted out here."""
    own = {"charged_limits": ["search", "site"], "charged_subjects": ["beta", "(everyone)"]}
    rows = found({}, {"caller": "beta"}, {"caller": "beta", **own}, {"caller": "zeta"})
    kept = rows.of_callers(frozenset(["beta", "zeta", "nobody"]))
    assert (3, [1, 1]) == (len(kept), kept.charges.row.tolist())
    assert [("beta", "rate"), ("beta", "search"), ("zeta", "rate")] == sorted(
        buckets_of(kept, _with_search(book_of("beta", "zeta"))).keys
    )


def _with_search(book: TermsBook) -> TermsBook:
    book.add("beta", "search", 1, "ten", Held(1.0, 5, ""))
    return book


def _causes(held: list[Holding], *refusals: dict[str, Any]) -> list[Cause]:
    """The cause of each refusal of a caller that had all of its 20 tokens."""
    rows = found(*({"code": SPENT, **one} for one in refusals))
    buckets = buckets_of(rows, book_of("acme"))
    replayed = BEST.replay(buckets.decided, Carried.unseen(1))
    explained = with_grants(
        first_causes(buckets, replayed), rows, buckets, replayed, {("acme", "rate"): held} if held else {}
    )
    assert counted(explained, replayed).sum() == replayed.counts[:, Counts.WRONGFUL].sum() == len(refusals)
    return [Cause(cause) for cause in explained.cause.tolist()]


def test_tokens_are_stranded_only_while_another_copy_holds_them_unspent() -> None:
    """From when it was granted, less what it spent by then, until it was closed."""
    held = Holding("gw-2", START_US + 10, START_US + 100, 18, [START_US + 20, START_US + 40], [10, 8])
    refusals = [{"at_us": at_us, "cost_tokens": 3} for at_us in (5, 10, 30, 40, 99, 100)]
    assert [
        Cause.STALE_EMPTY, Cause.STRANDED, Cause.STRANDED, Cause.STALE_EMPTY, Cause.STALE_EMPTY, Cause.STALE_EMPTY,
    ] == _causes([held], *refusals)  # fmt: skip


def test_a_copys_own_grant_strands_nothing_for_itself_and_the_owners_word_is_not_memory() -> None:
    """What it held it could have spent; and an owner that was asked forgot nothing."""
    held = [Holding("gw-1", START_US, START_US + 100, 18, [], [])]
    asked = outcome_code(Source.SHARED, Reason.SPENT)
    assert [Cause.UNKNOWN, Cause.STALE_EMPTY, Cause.UNKNOWN] == _causes(
        held,
        {"at_us": 1, "cost_tokens": 3},
        {"at_us": 2, "cost_tokens": 2},
        {"at_us": 3, "cost_tokens": 2, "code": asked},
    )


def test_without_grants_a_limit_is_divided_unless_its_decisions_name_some() -> None:
    """Grants may be missing on record; then nothing is known."""
    assert [Cause.DIVIDED] == _causes([], {"grant_id": 0})
    assert [Cause.UNKNOWN] == _causes([], {"grant_id": 1})
