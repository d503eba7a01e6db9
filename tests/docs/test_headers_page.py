"""The page on response headers: every response on it is what a client gets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from enforcer.cap.guard import CapGuard
from enforcer.http.answers import HeaderStyle
from enforcer.http.asgi import Message, RateLimitMiddleware, Receive, Scope, Send
from enforcer.policies.loader import parse_policy
from enforcer.types import Verdict
from tests.docs.snippets import snippets
from tests.unit.enforcer.harness import Fleet

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "headers.md"
#: Of the responses on the page, in order: what was asked before, what is asked, in which style, and whether it is full.
ASKED = [
    ([], "GET /items/1", "draft", False),
    (["GET /items/1"], "POST /report", "draft", False),
    (["GET /items/1"], "POST /import", "draft", False),
    (["GET /items/1"], "GET /items/1", "draft", True),
    ([], "GET /items/1", "both", False),
]


async def _hello(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def _nothing() -> Message:
    return {"type": "http.request"}


async def _answer(app: RateLimitMiddleware, request: str) -> str:
    """Status and headers as the page shows them: without those of the body."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    method, path = request.split(" ")
    headers = [(b"x-account", b"acme")]
    await app({"type": "http", "method": method, "path": path, "headers": headers}, _nothing, send)
    lines = [f"HTTP/1.1 {sent[0]['status']}"]
    lines += [f"{name.decode()}: {value.decode()}" for name, value in sent[0]["headers"] if name[:8] != b"content-"]
    return "\n".join([*lines, ""])


@pytest.mark.parametrize("number", range(len(ASKED)))
async def test_a_response_on_the_page_is_what_the_client_gets(number: int) -> None:
    """A client is written after this page."""
    before, request, style, full = ASKED[number]
    (policy,) = snippets(PAGE, "yaml")
    shown = snippets(PAGE, "http")
    assert len(ASKED) == len(shown)
    fleet = Fleet(parse_policy(policy.encode()))
    guard = CapGuard(clock=fleet.clock)
    app = RateLimitMiddleware(_hello, fleet.limiter, cap=guard, headers=style)  # type: ignore[arg-type]  # of a list
    for earlier in before:
        await _answer(app, earlier)
    taken = [guard.enter(fleet.limiter, "other", "GET /items/{id}") for _ in range(500 if full else 0)]
    assert isinstance(taken[-1], Verdict) if full else not taken
    assert shown[number] == await _answer(app, request)


def test_every_style_and_every_header_has_its_place_on_the_page() -> None:
    """A header that the page does not know is one that nobody was told of."""
    text = PAGE.read_text()
    assert all(f'"{style}"' in text for style in get_args(HeaderStyle))
    sources = "".join(path.read_text() for path in PAGE.parents[2].glob("enforcer/**/*.py"))
    named = set(re.findall(r'"((?:x-)?(?:ratelimit|tallygate)-[a-z-]+|retry-after)"', sources))
    assert {"ratelimit-policy", "retry-after", "x-ratelimit-reset", "x-tallygate-status"} <= named
    assert [] == sorted(name for name in named if name not in text.lower())
