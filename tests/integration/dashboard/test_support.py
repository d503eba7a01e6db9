"""Support's page on a real engine: from a request id to the why."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from enforcer.identity import CopyIdentity, format_request_id
from enforcer.types import Reason
from tests import seeding
from tests.integration.dashboard.conftest import NOW_US, Desk, browser, config_for
from tests.seeding import CallerSeed, SeedDecision


def request_id(d: SeedDecision) -> str:
    """What stands in the refusal's body."""
    return format_request_id(CopyIdentity(d.copy_id, d.epoch), d.seq)


def text_of(page: str) -> str:
    """A page without its tags, blanks folded."""
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", page)))


async def test_three_refusals_by_the_local_tier_are_three_on_the_page(database_dsn: str) -> None:
    """R10: what was refused without asking anyone is visible, with route, reason, source and copy."""
    seeds = [
        CallerSeed("acme", rate_per_s=0.001, burst=2, copies=("gw-7",), load=lambda minute: 5 if minute == 9 else 0)
    ]
    seeded = seeding.decide(seeds, now_us=NOW_US + 39_000_000, minutes=10)
    seeding.write(database_dsn, seeded)
    async with browser(config_for(database_dsn), NOW_US + 40_000_000) as client:
        await Desk(database_dsn, seeded, config_for(database_dsn)).sign_in(client, "support")
        page = (await client.get("/support?q=acme")).text
    assert 3 == len(seeded.refusals("acme"))
    assert 3 == page.count('<li id="r-')
    shown = text_of(page)
    assert "acme sent 5 requests in the last hour; 3 (60.0" in shown
    for d in seeded.refusals("acme"):
        assert request_id(d) in shown
        assert d.scope in shown
    assert 3 == shown.count("local: this server, from its own share")
    assert 3 == shown.count("Reason spent")
    assert 3 == shown.count("Copy gw-7")


async def test_a_refusal_by_a_quota_is_explained_as_one_on_both_pages(database_dsn: str) -> None:
    """A customer of 5 per second must not read that his plan is ten a day, nor support tell him so."""
    seeded = seeding.decide([CallerSeed("acme", load=lambda minute: 2)], now_us=NOW_US, minutes=10)
    quota: dict[str, Any] = {"limit": "day", "terms": (10 / 86_400, 10, "day"), "retry_after_ms": 53_000_000}
    last = seeded.decisions[-1]
    seeded.decisions[-1] = replace(last, allowed=False, reason=Reason.SPENT, remaining=0, **quota)
    seeding.write(database_dsn, seeded)
    desk = Desk(database_dsn, seeded, config_for(database_dsn))
    said = "Refused: the quota of 10 per day was used up; it starts anew 15 h later (UTC)."
    async with browser(desk.config) as client:
        await desk.sign_in(client, "support")
        page = text_of((await client.get(f"/support?q={request_id(seeded.decisions[-1])}")).text)
        assert 2 == page.count(said)
        for shown in (
            "Your plan is standard (5/s, bursts of 30).",
            "Limit day (10 per day)",
            "because a limit was used up",
        ):
            assert shown in page
    async with browser(desk.config) as client:
        await desk.sign_in(client, "customer", "acme")
        page = text_of((await client.get("/usage")).text)
        assert said in page
        assert "your plan is 5 per second with bursts of 30" in page


async def test_a_request_id_leads_to_its_decision(desk: Desk, support: httpx.AsyncClient) -> None:
    """R13: policy version, limit, tokens, k and grant id of the refusal that the customer quotes."""
    wanted = next(d for d in desk.seeded.refusals("acme")[30:] if d.grant_id)
    page = (await support.get(f"/support?q={request_id(wanted)}")).text
    found = re.search(r'<section id="found".*?</section>', page, re.DOTALL)
    assert found is not None
    shown = text_of(found.group())
    assert f"Request {request_id(wanted)}" in shown
    for facts in (
        "Policy version 41", "Limit rate (5/s, bursts of 30)", "Tokens remaining 0", "Servers reached (k) 4",
        f"Copy {wanted.copy_id}", f"Epoch / seq {wanted.epoch} / {wanted.seq}", f"Grant {wanted.grant_id}", "(final)",
    ):  # fmt: skip
        assert facts in shown
    assert wanted.scope in shown
    assert "acme" in text_of(page)


@pytest.mark.parametrize("blank", ["", " ", "%20%20"])
async def test_a_pasted_id_may_have_blanks_around_it(desk: Desk, support: httpx.AsyncClient, blank: str) -> None:
    """It was copied out of a mail."""
    wanted = desk.seeded.refusals("acme")[0]
    page = (await support.get(f"/support?q={blank}{request_id(wanted)}{blank}")).text
    assert 'id="found"' in page


async def test_an_unknown_request_id_says_that_it_may_not_have_arrived(support: httpx.AsyncClient) -> None:
    """The commonest case is a refusal of two seconds ago."""
    answer = await support.get("/support?q=gw-1-kf12oi3s-1x")
    assert 200 == answer.status_code
    assert "No request gw-1-kf12oi3s-1x on record" in unescape(answer.text)
    assert "It may not have arrived yet" in answer.text


async def test_an_unknown_caller_says_so_and_offers_what_begins_like_it(support: httpx.AsyncClient) -> None:
    """A mistyped name is one click from the right one."""
    for typed in ("acm", "ACM", "Acme"):
        page = text_of((await support.get(f"/support?q={typed}")).text)
        assert f"No caller is called exactly “{typed}” This one begins with it: acme" in page
    page = text_of((await support.get("/support?q=zzz")).text)
    assert "No caller is called exactly “zzz” No caller’s name begins with it either: nothing is on record" in page


async def test_the_reply_stands_before_the_long_list(support: httpx.AsyncClient) -> None:
    """What support came for must not be under fifty rows."""
    page = (await support.get("/support?q=acme")).text
    assert page.index('id="reply-text"') < page.index('id="refusals"')


async def test_the_start_offers_callers(support: httpx.AsyncClient) -> None:
    """An empty search box is not a dead end."""
    assert ">acme</a>" in (await support.get("/support")).text


async def test_every_row_opens_to_its_facts_and_the_reply_can_be_copied(desk: Desk, support: httpx.AsyncClient) -> None:
    """Fifty rows, fifty openings, one reply with the numbers in it."""
    page = (await support.get("/support?q=acme")).text
    assert min(50, len(desk.seeded.refusals("acme"))) == page.count("<details><summary>")
    reply = re.search(r'<textarea id="reply-text".*?>(.*?)</textarea>', page, re.DOTALL)
    assert reply is not None
    assert f"your account acme sent {len(desk.seeded.of('acme')):,} requests" in unescape(reply.group(1))
    assert "Late: gw-4." in page


@pytest.mark.parametrize(
    "sought",
    ["'; DROP TABLE live --", "<script>alert(1)</script>", "{caller:String}", "a\\'b", "%", "☃" * 100, "x" * 5_000],
)
async def test_nothing_that_is_typed_becomes_sql_or_markup(desk: Desk, support: httpx.AsyncClient, sought: str) -> None:
    """The one place where free text goes in."""
    answer = await support.get(f"/support?q={quote(sought)}")
    assert 200 == answer.status_code
    assert "No caller is called exactly" in answer.text
    assert "<script>alert" not in answer.text
    assert len(desk.seeded.of("acme")) > 0
    assert ">acme</a>" in (await support.get("/support")).text


async def test_callers_with_strange_names_are_found(database_dsn: str) -> None:
    """A caller's id may hold quotes and backslashes; it is bound and fenced all the same."""
    names = ["o'brien", 'back\\slash "quoted"', "naïve ☃", "a}b{c"]
    seeded = seeding.decide([CallerSeed(name, load=lambda _: 3) for name in names], now_us=NOW_US, minutes=2)
    seeding.write(database_dsn, seeded)
    config = config_for(database_dsn)
    async with browser(config) as client:
        await Desk(database_dsn, seeded, config).sign_in(client, "support")
        for name in names:
            page = text_of((await client.get(f"/support?q={quote(name)}")).text)
            assert f"{name} sent {len(seeded.of(name))} requests" in page
