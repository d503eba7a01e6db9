"""In and out, and the headers that every answer carries."""

from __future__ import annotations

import httpx
import pytest

from dashboard.links import sign_in_link
from dashboard.sessions import COOKIE
from tests.integration.dashboard.conftest import BASE, SECRET, Desk


@pytest.mark.parametrize(("role", "caller", "home"), [("customer", "acme", "/usage"), ("support", None, "/support")])
async def test_a_link_leads_to_the_page_of_its_role(
    visitor: httpx.AsyncClient, role: str, caller: str | None, home: str
) -> None:
    """And the token does not stay in the address."""
    answer = await visitor.get(sign_in_link(BASE, SECRET, role, caller))  # type: ignore[arg-type]  # one of the roles
    assert (303, home) == (answer.status_code, answer.headers["location"])
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert home == (await visitor.get("/")).headers["location"]


async def test_the_cookie_is_secure_behind_tls(visitor: httpx.AsyncClient) -> None:
    """It must not travel in the clear where it need not."""
    answer = await visitor.get(sign_in_link(BASE.replace("http:", "https:"), SECRET, "support"))
    assert "secure" in answer.headers["set-cookie"].lower()


async def test_signing_out_ends_the_session(customer: httpx.AsyncClient) -> None:
    """The browser of an office is used by the next one."""
    assert 303 == (await customer.post("/sign-out")).status_code
    assert COOKIE not in customer.cookies
    assert 401 == (await customer.get("/usage")).status_code
    assert 200 == (await customer.get("/signed-out")).status_code


async def test_another_site_cannot_sign_anyone_out(customer: httpx.AsyncClient) -> None:
    """A nuisance, but one that costs a line to prevent."""
    answer = await customer.post("/sign-out", headers={"sec-fetch-site": "cross-site"})
    assert 404 == answer.status_code
    assert 200 == (await customer.get("/usage")).status_code


async def test_a_wrong_link_is_answered_with_401(visitor: httpx.AsyncClient) -> None:
    """With words that can be typed as they stand, and without a cookie."""
    answer = await visitor.get("/sign-in?token=nothing")
    assert 401 == answer.status_code
    assert "not valid" in answer.text
    assert ".venv/bin/tallygate link --role support" in answer.text
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "path", ["/usage", "/usage.json", "/nowhere", "/static/tallygate.css", "/static/nothing.js", "/health"]
)
async def test_every_answer_carries_the_content_policy(customer: httpx.AsyncClient, path: str) -> None:
    """Errors and files too: a policy with a gap is none."""
    headers = (await customer.get(path)).headers
    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert "nosniff" == headers["x-content-type-options"]
    assert "no-referrer" == headers["referrer-policy"]
    assert ("no-store" == headers["cache-control"]) == (path != "/static/tallygate.css")


async def test_an_unknown_page_is_404_and_says_so(desk: Desk, customer: httpx.AsyncClient) -> None:
    """Plain words, in our own look."""
    answer = await customer.get("/nowhere")
    assert 404 == answer.status_code
    assert "There is no such page" in answer.text
