"""The pages on the ways in: every Python snippet runs, against an owner that is not there."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import stream
from enforcer import CopyIdentity, Limiter, parse_request_id
from enforcer.testing import RecordingSink
from tests.docs.snippets import snippets

ROOT = Path(__file__).resolve().parents[2]
WAYS = ROOT / "docs" / "ways-in"


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example's policy, and a port on which nobody listens: a limiter without its owner starts, and serves."""
    monkeypatch.setenv("TALLYGATE_POLICY", str(ROOT / "examples" / "asgi" / "policy.yaml"))
    monkeypatch.setenv("TALLYGATE_OWNER_URL", "redis://127.0.0.1:1/0")
    yield
    # What a snippet leaves to the end of its process must not outlive the test.
    # By type: asking a lazy object of some framework for its class would make it.
    for limiter in [found for found in gc.get_objects() if type(found) is Limiter]:
        limiter.close()


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[RecordingSink]:
    """The sinks that snippets make: `kafka_sink` is the name that they import, and no Kafka is there."""
    made: list[RecordingSink] = []

    def sink(_: CopyIdentity) -> RecordingSink:
        made.append(RecordingSink())
        return made[-1]

    monkeypatch.setattr(stream, "kafka_sink", sink)
    return made


def _run(body: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "snippet"}
    exec(compile(body, "snippet", "exec"), names)
    return names


def test_calls_run_as_the_page_says(recorded: list[RecordingSink]) -> None:
    """It is what an embedder copies first."""
    plain, waiting, forking, told, later, decorated = (_run(body) for body in snippets(WAYS / "python.md", "python"))
    assert plain["verdict"].allowed
    assert [plain["verdict"]] == recorded[0].verdicts, "what is copied first must be on record"
    assert waiting["admitted"]
    assert forking["admitted"]
    assert ("rate", 0) == (told["refused_by"], told["left"])
    assert told["sentence"].startswith("Refused: ")
    assert ["ratelimit-policy", "ratelimit", "retry-after"] == [name.decode() for name, _ in told["headers"]]
    assert parse_request_id(told["request_id"])
    assert later["verdict"].allowed
    assert "results for limits" == decorated["found"]


async def test_the_asgi_application_serves_with_headers(recorded: list[RecordingSink]) -> None:
    """Ten lines, and a client knows where it stands, and support what it was told."""
    app = _run(snippets(WAYS / "asgi.md", "python")[0])["app"]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        answer = await client.get("/items/7", headers={"x-account": "acme"})
    assert (200, {"item": "7"}) == (answer.status_code, answer.json())
    assert "ratelimit" in answer.headers
    assert [1] == [len(sink.verdicts) for sink in recorded]


def test_the_wsgi_application_serves_with_headers(recorded: list[RecordingSink]) -> None:
    """The same for Flask."""
    app = _run(snippets(WAYS / "wsgi.md", "python")[0])["application"]
    with httpx.Client(transport=httpx.WSGITransport(app), base_url="http://test") as client:
        answer = client.get("/", headers={"x-account": "acme"})
    assert (200, "hello\n") == (answer.status_code, answer.text)
    assert "ratelimit" in answer.headers
    assert [1] == [len(sink.verdicts) for sink in recorded]


@pytest.mark.parametrize(("page", "examples"), [("asgi.md", {"fastapi"}), ("wsgi.md", {"flask", "django"})])
def test_pages_start_workers_as_the_examples_do(page: str, examples: set[str]) -> None:
    """`tests/e2e/examples` starts the examples as their READMEs say; a page must show the same, to the letter."""
    shown = dict(
        re.findall(r"<!-- examples/(\w+)/README.md -->\n```sh\n(.*?)```", (WAYS / page).read_text(), re.DOTALL)
    )
    assert examples == set(shown)
    assert shown == {name: snippets(ROOT / "examples" / name / "README.md", "sh")[0] for name in shown}


@pytest.mark.parametrize("page", sorted(path.name for path in WAYS.glob("*.md")))
def test_every_way_in_is_in_the_index(page: str) -> None:
    """A page that nobody finds was not written."""
    assert page == "README.md" or f"({page})" in (WAYS / "README.md").read_text()
