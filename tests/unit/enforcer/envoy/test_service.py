"""Envoy's calls, answered without a network: verdicts, all or nothing, what is told, what is refused as malformed."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from enforcer.envoy.requests import MAX_DESCRIPTORS
from enforcer.envoy.service import RateLimitService
from enforcer.envoy.stubs import RateLimitResponse
from enforcer.errors import InvalidField
from enforcer.identity import parse_request_id
from enforcer.metrics.metrics import CopyMetrics
from enforcer.sink import WouldRefuse
from tests.unit.enforcer.envoy.calls import CODES, RULES, ask, call, descriptor, envoy_policy, headers, raw_descriptor
from tests.unit.enforcer.harness import Fleet

UNIT = RateLimitResponse.RateLimit


def _fleet(*, burst: int = 10, **fields: Any) -> Fleet:
    return Fleet(envoy_policy(rate_per_s=1, burst=burst, **fields))


async def test_admitted_call_tells_limit_room_and_headers() -> None:
    """Envoy and the client both read from it how much is left."""
    fleet = _fleet()
    response = await ask(fleet, call(descriptor(account="acme", class_="read")))
    (status,) = response.statuses
    assert CODES.OK == response.overall_code == status.code
    assert (1, UNIT.SECOND, "rate") == (
        status.current_limit.requests_per_unit,
        status.current_limit.unit,
        status.current_limit.name,
    )
    assert 9 == status.limit_remaining
    assert 1 == status.duration_until_reset.seconds
    assert {"ratelimit-policy": '"rate";q=10;w=10', "ratelimit": '"rate";r=9;t=1'} == headers(response)
    (verdict,) = fleet.sink.verdicts
    assert ("acme", "read", 1) == (verdict.basis.caller, verdict.basis.scope, verdict.cost)


async def test_refused_call_tells_when_and_by_which_decision() -> None:
    """Support finds a refusal by its request id; a client waits as long as it is told."""
    fleet = _fleet()
    full = await ask(fleet, call(descriptor(account="acme", class_="read"), hits=10))
    assert CODES.OK == full.overall_code
    response = await ask(fleet, call(descriptor(account="acme", class_="read")))
    (status,) = response.statuses
    assert CODES.OVER_LIMIT == response.overall_code == status.code
    assert 0 == status.limit_remaining
    assert status.duration_until_reset.seconds + status.duration_until_reset.nanos / 1e9 > 0
    found = headers(response)
    assert "1" == found["retry-after"]
    assert fleet.sink.verdicts[-1].seq == parse_request_id(found["tallygate-request-id"])[1]
    assert found["tallygate-request-id"].encode() in response.raw_body


@pytest.mark.parametrize(
    ("request_hits", "own_hits", "cost"), [(0, None, 2), (1, None, 1), (3, None, 3), (3, 4, 4), (3, 0, 0), (0, 0, 0)]
)
async def test_hits_addend_is_the_cost(request_hits: int, own_hits: int | None, cost: int) -> None:
    """A descriptor's own number goes before the request's, and nought there asks without spending; else the rule's."""
    fleet = _fleet()
    await ask(fleet, call(descriptor(remote_address="10.0.0.1", hits=own_hits), hits=request_hits))
    assert [cost] == [verdict.cost for verdict in fleet.sink.verdicts]


async def test_refusal_by_one_descriptor_charges_no_other() -> None:
    """A user at its own limit must not use up everybody's."""
    fleet = _fleet(burst=100)
    user = descriptor(account="user", hits=60, class_="read")
    site = descriptor(account="site", hits=1, class_="all")
    answers = [await ask(fleet, call(site, user)) for _ in range(5)]
    assert [CODES.OK] + [CODES.OVER_LIMIT] * 4 == [answer.overall_code for answer in answers]
    assert [(CODES.OK, CODES.OVER_LIMIT)] * 4 == [tuple(s.code for s in answer.statuses) for answer in answers[1:]]
    fleet.limiter.close()
    spent: dict[str, int] = {}
    for (caller, _, _), total in fleet.sink.final_totals().items():
        spent[caller] = spent.get(caller, 0) + total.spent
    assert {"site": 1, "user": 60} == spent


async def test_descriptors_after_a_refusal_are_not_checked() -> None:
    """They are told so: neither allowed nor refused."""
    fleet = _fleet()
    never = descriptor(account="user", hits=11, class_="read")
    response = await ask(fleet, call(never, descriptor(account="site", class_="all")))
    assert [CODES.OVER_LIMIT, CODES.UNKNOWN] == [status.code for status in response.statuses]
    assert ["user"] == [verdict.basis.caller for verdict in fleet.sink.verdicts]
    assert not response.statuses[0].HasField("duration_until_reset")


async def test_unmatched_descriptor_is_allowed_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """A limit that is silently not applied would be found by nobody."""
    fleet = _fleet()
    metrics = CopyMetrics()
    service = RateLimitService(fleet.limiter, metrics)
    with caplog.at_level(logging.WARNING, "enforcer.envoy"):
        for _ in range(3):
            answer = RateLimitResponse.FromString(await service.answer(call(descriptor(colour="red"), domain="else")))
            assert CODES.OK == answer.overall_code
        await service.answer(call(descriptor(colour="red")))
    assert {("(unknown)",): 3, ("shop",): 1} == metrics.read().values["tallygate_envoy_unmatched_total"]
    assert 2 == len(caplog.records)
    assert "'else' with keys 'colour'" in caplog.text
    assert [] == fleet.sink.verdicts


async def test_unmatched_descriptor_is_refused_where_the_policy_says_so_and_charges_nobody() -> None:
    """For those who would rather serve nothing than something without a limit."""
    fleet = _fleet(section={**RULES, "unmatched": "refuse"})
    known = descriptor(account="acme", class_="read")
    response = await ask(fleet, call(known, descriptor(colour="red")))
    assert CODES.OVER_LIMIT == response.overall_code
    assert [CODES.UNKNOWN, CODES.OVER_LIMIT] == [status.code for status in response.statuses]
    assert [] == fleet.sink.verdicts


async def test_rule_in_shadow_refuses_nothing_and_says_what_it_would_refuse() -> None:
    """E21: a limit is tried on real traffic; the client sees the enforced ones alone, and none of theirs moves."""
    rules = {
        "account": {"caller": "{account}", "scope": "{class}"},
        "trial": {"caller": "{trial}", "scope": "trial", "mode": "shadow"},
    }
    fleet = _fleet(burst=4, section={"domains": {"shop": {"rules": rules}}})
    message = call(descriptor(trial="acme"), descriptor(account="acme", class_="read"))
    answers = [await ask(fleet, message) for _ in range(6)]
    assert [CODES.OK] * 4 + [CODES.OVER_LIMIT] * 2 == [answer.overall_code for answer in answers]
    assert {CODES.OK} == {answer.statuses[0].code for answer in answers}
    assert not answers[0].statuses[0].HasField("current_limit")
    assert ['"rate";r=3;t=1', '"rate";r=2;t=1'] == [headers(answer)["ratelimit"] for answer in answers[:2]]
    only = [await ask(fleet, call(descriptor(trial="acme", hits=2))) for _ in range(3)]
    assert [(CODES.OK, {})] * 3 == [(answer.overall_code, headers(answer)) for answer in only]
    assert {("acme", "read")} == {(verdict.basis.caller, verdict.basis.scope) for verdict in fleet.sink.verdicts}
    fleet.limiter.close()
    (told,) = [fact for fact in fleet.sink.events if isinstance(fact, WouldRefuse)]
    assert ("acme", "trial", "rate", 3, 6) == (told.caller, told.scope, told.limit, told.requests, told.cost)


async def test_new_policy_is_applied_from_the_next_call_on() -> None:
    """Rules are edited while the service runs."""
    fleet = _fleet()
    service = RateLimitService(fleet.limiter)
    section = {"domains": {"shop": {"rules": {"all": {"caller": "everyone", "scope": "{class}"}}}}}
    message = call(descriptor(account="acme", class_="read"))
    await service.answer(message)
    fleet.limiter.apply(envoy_policy(rate_per_s=1, burst=10, section=section, version=2))
    await service.answer(message)
    assert ["acme", "everyone"] == [verdict.basis.caller for verdict in fleet.sink.verdicts]


_GOOD = descriptor(account="acme", class_="read")


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (b"\xff\xff", "RateLimitRequest is"),
        (b"\x0a\x02\xc3\x28", "texts in UTF-8"),
        (call(_GOOD, domain=""), "domain is ''; allowed: text of 1 to 256 printable"),
        (call(), "descriptors is '(0 of them)'; allowed: 1 to 64"),
        (call(*[_GOOD] * (MAX_DESCRIPTORS + 1)), "(65 of them)"),
        (call(_GOOD, descriptor()), "descriptors[1].entries is '(0 of them)'"),
        (call(raw_descriptor({f"k{n}": "v" for n in range(65)})), "descriptors[0].entries is '(65 of them)'"),
        (call(raw_descriptor({"": "v"})), "descriptors[0].entries[0].key is ''"),
        (call(_GOOD, descriptor(account="a\nb", class_="read")), "descriptors[1] caller is 'a\\nb'"),
        (call(descriptor(account="x" * 5_000, class_="read")), "(5,000 long)"),
        (call(descriptor(account="acme", class_="")), "descriptors[0] scope is ''"),
        (call(_GOOD, hits=1_000_000_001), "hits_addend is 1000000001; allowed: 0 to 1,000,000,000"),
        (call(_GOOD, descriptor(account="b", hits=1 << 63, class_="x")), "descriptors[1].hits_addend is"),
    ],
)
async def test_malformed_call_names_the_fault_and_charges_nobody(message: bytes, says: str) -> None:
    """What is not understood is neither guessed nor half done."""
    fleet = _fleet()
    with pytest.raises(InvalidField) as caught:
        await ask(fleet, message)
    assert says in str(caught.value)
    assert "allowed: " in str(caught.value)
    assert [] == fleet.sink.verdicts


async def test_key_that_stands_twice_is_malformed() -> None:
    """Two accounts in one descriptor: whose request would it be?"""
    twice = descriptor(account="a")
    twice.entries.add(key="account", value="b")
    with pytest.raises(InvalidField, match="each key once"):
        await ask(_fleet(), call(twice))
