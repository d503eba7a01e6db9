"""The customer's page on a real engine: the numbers are those that were written."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from html import unescape
from typing import Any

import httpx
import pytest

from enforcer.identity import CopyIdentity, format_request_id
from enforcer.types import Source
from tests.integration.dashboard.conftest import NOW_US, Desk, browser


async def document(client: httpx.AsyncClient, address: str = "/usage.json") -> dict[str, Any]:
    """The page's numbers."""
    answer = await client.get(address)
    assert 200 == answer.status_code
    found: dict[str, Any] = answer.json()
    return found


async def test_totals_are_those_of_the_record(desk: Desk, customer: httpx.AsyncClient) -> None:
    """Sent, admitted and refused are exact, although every row was written twice with different totals."""
    own = desk.seeded.of("acme")
    totals = (await document(customer))["totals"]
    assert len(own) == totals["sent"]
    assert sum(d.allowed for d in own) == totals["admitted"]
    refused = Counter(d.reason.name.lower() for d in own if not d.allowed)
    assert dict(refused) == totals["refused_by_reason"]
    assert sum(d.cost for d in own if d.allowed) == totals["tokens_spent"]


async def test_series_and_endpoints_add_up_to_the_totals(desk: Desk, customer: httpx.AsyncClient) -> None:
    """One read feeds picture, table and sentence."""
    found = await document(customer)
    for part in ("series", "endpoints"):
        for name in ("sent", "admitted", "refused"):
            assert found["totals"][name] == sum(row[name] for row in found[part]), (part, name)
    by_scope = Counter(d.scope for d in desk.seeded.of("acme"))
    assert dict(by_scope) == {row["endpoint"]: row["sent"] for row in found["endpoints"]}


async def test_busiest_second_is_counted_in_the_record(desk: Desk, customer: httpx.AsyncClient) -> None:
    """The second that broke the burst is what a customer looks for in his own log."""
    seconds = Counter(d.at_us // 1_000_000 for d in desk.seeded.of("acme"))
    assert max(seconds.values()) == (await document(customer))["busiest"]["requests"]


async def test_k_is_the_number_of_copies_reached(desk: Desk, customer: httpx.AsyncClient) -> None:
    """In words on the page, as a number in the JSON."""
    assert 4 == (await document(customer))["servers_reached"]
    assert "Your traffic reaches 4 of our servers." in (await customer.get("/usage")).text


async def test_refusals_are_listed_newest_first_with_their_ids(desk: Desk, customer: httpx.AsyncClient) -> None:
    """The id in the customer's log must be the id on his page."""
    expected = [format_request_id(CopyIdentity(d.copy_id, d.epoch), d.seq) for d in desk.seeded.refusals("acme")]
    found = await document(customer)
    assert expected[:25] == [row["request_id"] for row in found["refusals"]]
    assert all(row["why"].startswith("Refused") for row in found["refusals"])
    page = unescape((await customer.get("/usage")).text)
    assert expected[0] in page
    assert found["refusals"][0]["why"] in page


async def test_page_csv_and_json_have_the_same_numbers(customer: httpx.AsyncClient) -> None:
    """Three answers to one question would be two too many."""
    found = await document(customer)
    answer = await customer.get("/usage.csv")
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    names = ("endpoint", "sent", "refused", "tokens_spent")
    assert [[r[name] for name in names] for r in rows] == [[str(r[name]) for name in names] for r in found["endpoints"]]
    page = (await customer.get("/usage")).text
    for row in found["endpoints"]:
        assert f'<td data-label="Tokens spent">{row["tokens_spent"]:,}</td>' in page
    sentence = re.search(r'id="sentence"[^>]*>(.*?)</p>', page, re.DOTALL)
    assert sentence is not None
    assert found["answer"] == unescape(re.sub(r"<[^>]+>", "", sentence.group(1))).strip()


async def test_data_until_names_the_late_copy_and_not_the_stopped_one(customer: httpx.AsyncClient) -> None:
    """Gw-4 was last heard 40 s ago, gw-9 said that it stopped; a customer is not told their names there."""
    found = await document(customer)
    assert (1, 5) == (found["servers_late"], found["servers"])
    page = (await customer.get("/usage")).text
    assert "; 1 of 5 servers late; not settled yet." in page
    assert "Late: gw-4" not in page


async def test_span_and_zone_are_in_the_address(customer: httpx.AsyncClient) -> None:
    """A link sent to a colleague shows the same page."""
    found = await document(customer, "/usage.json?span=30d&zone=Asia/Kolkata")
    assert ("30d", "Asia/Kolkata", 30) == (found["span"]["name"], found["span"]["zone"], len(found["series"]))
    assert {"T00:00:00.000+05:30"} == {row["from"][10:] for row in found["series"]}
    page = unescape((await customer.get("/usage?span=24h&zone=Asia/Kolkata")).text)
    assert "/usage?span=7d&zone=Asia%2FKolkata" in page
    assert "(+05:30)" in page


@pytest.mark.parametrize("address", ["/usage?zone=Mars", "/usage?span=2h", "/usage.json?zone=Mars"])
async def test_a_wrong_zone_or_span_is_said(customer: httpx.AsyncClient, address: str) -> None:
    """Not an empty page, not a traceback: the field, the value and what is allowed."""
    answer = await customer.get(address)
    assert 400 == answer.status_code
    assert "allowed:" in answer.text


async def test_a_caller_without_traffic_sees_how_to_send_a_first_request(
    desk: Desk, visitor: httpx.AsyncClient
) -> None:
    """An empty page that says nothing looks broken."""
    await desk.sign_in(visitor, "customer", "initech")
    page = unescape((await visitor.get("/usage")).text)
    assert 'You sent <b class="strong">no requests</b> in the last hour.' in page
    assert 'curl -i -H "x-account: initech"' in page
    assert "data-chart" not in page


async def test_a_span_after_the_traffic_says_when_it_was(desk: Desk) -> None:
    """The last request is three hours old: nothing in the last hour, but not never."""
    async with browser(desk.config, NOW_US + 3 * 3_600_000_000) as later:
        await desk.sign_in(later, "customer", "acme")
        page = (await later.get("/usage")).text
        assert "Your last request came at" in page
        assert "standard (5/s, bursts of 30)" in page


async def test_degraded_decisions_are_counted_apart(desk: Desk, support: httpx.AsyncClient) -> None:
    """E16 on the page: what was decided without the owner is said."""
    degraded = sum(d.source is Source.DEGRADED for d in desk.seeded.of("acme"))
    page = (await support.get("/support?q=acme")).text
    assert f"{degraded} decisions were made in degraded mode</b>: the server could not reach the limiter" in page


async def test_decided_locally_is_explained_only_where_it_is_in_the_picture(
    customer: httpx.AsyncClient, desk: Desk
) -> None:
    """A customer has no use for our words, and none for a key to what is not there."""
    page = (await customer.get("/usage")).text
    assert "decided locally" in page
    assert "degraded mode" not in page
    async with browser(desk.config, NOW_US + 3 * 3_600_000_000) as later:
        await desk.sign_in(later, "customer", "acme")
        assert "decided locally" not in (await later.get("/usage")).text
