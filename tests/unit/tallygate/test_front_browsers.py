"""Which requests a web page could have sent."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from tallygate.engines.front.browsers import refuse_web_pages
from tallygate.engines.front.errors import FrontError


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:18123",
        "localhost",
        "LOCALHOST:8123",
        "localhost.:1",
        "[::1]:8123",
        "10.0.0.7:8123",
        "clickhouse:8123",
    ],
)
def test_programs_are_let_through_by_every_name_of_ours(host: str) -> None:
    """An address names nobody else's server, and a name that was given at the start is ours."""
    refuse_web_pages(Headers({"host": host}), ["ClickHouse"])
    refuse_web_pages(Headers({}), [])


@pytest.mark.parametrize(
    "host",
    ["evil.example:18123", "127.0.0.1.evil.example", "localhost.evil.example", "1.2.3.4@evil.example", "", "[evil]:1",
     "localhost:1:2", "127.0.0.1 evil", "clickhouse.evil.example"],
)  # fmt: skip
def test_a_name_that_was_made_to_point_here_is_refused(host: str) -> None:
    """DNS rebinding: to the browser the request is the page's own, so that it sends no Origin."""
    with pytest.raises(FrontError, match="allowed: an IP address, clickhouse, localhost") as refused:
        refuse_web_pages(Headers({"host": host}), ["clickhouse"])
    assert refused.value.status == 403


def test_every_host_header_counts() -> None:
    """Of two, a server and its guard may each take another one."""
    with pytest.raises(FrontError, match="Host is"):
        refuse_web_pages(Headers(raw=[(b"host", b"localhost"), (b"host", b"evil.example")]), [])


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "null"},
        {"origin": "http://localhost:18123"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "same-origin"},
        {"sec-fetch-site": ""},
    ],
)
def test_what_a_page_sends_is_refused(headers: dict[str, str]) -> None:
    """A picture or a form of any page makes a request without an Origin; its Sec-Fetch-Site gives it away."""
    with pytest.raises(FrontError, match="from web pages are refused") as refused:
        refuse_web_pages(Headers({"host": "localhost", **headers}), [])
    assert refused.value.status == 403


def test_an_address_that_a_person_types_is_answered() -> None:
    """Reading a table in a browser is a fine way to look at it."""
    refuse_web_pages(Headers({"host": "localhost:18123", "sec-fetch-site": "none"}), [])
