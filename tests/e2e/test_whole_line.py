"""The whole line on real engines: a real request is refused, and seconds later support finds it on a page."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from dashboard.links import sign_in_link
from tallygate.up import LocalStack, StackOptions
from tests.browser import Browser
from tests.servers.running import running

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "asgi"
_ANY_PORTS = StackOptions(owner_port=0, kafka_port=0, clickhouse_port=0, dashboard_port=0)
_ANY_PORT_WORDS = ("--owner-port", "0", "--kafka-port", "0", "--clickhouse-port", "0", "--dashboard-port", "0")


@contextmanager
def _example_gateway(stack: LocalStack, folder: Path) -> Iterator[str]:
    """The ten-line application of the README, served by uvicorn as the README says."""
    settings = {**stack.environ, "TALLYGATE_POLICY": str(EXAMPLE / "policy.yaml")}
    words = ("uvicorn", "--app-dir", str(EXAMPLE), "app:app", "--port", "0")
    with running(*words, log=folder / "gateway.log", settings=settings) as server:
        yield server.address
        server.stop()


@pytest.mark.services
@pytest.mark.browser
def test_a_refused_request_is_on_supports_page_seconds_later(browser: Browser, tmp_path: Path) -> None:
    """The promise of the product in one test: refused here, explained there, and counted exactly."""
    with LocalStack(_ANY_PORTS) as stack, _example_gateway(stack, tmp_path) as gateway:
        with httpx.Client(base_url=gateway, headers={"x-account": "marlow"}) as client:
            answers = [client.get("/") for _ in range(25)]
        statuses = Counter(answer.status_code for answer in answers)
        assert set(statuses) == {200, 429}
        refusal = next(answer for answer in reversed(answers) if answer.status_code == 429)
        assert {"ratelimit", "ratelimit-policy", "retry-after"} <= set(refusal.headers)
        request_id = refusal.json()["request_id"]

        browser.driver.get(sign_in_link(stack.dashboard_url, stack.secret, "support"))
        page = f"{stack.dashboard_url}/support?q={request_id}"

        def found() -> bool:
            browser.driver.get(page)
            return request_id in browser.text("#found")

        browser.until(found, "the refused request on support's page", within_s=30)
        assert "marlow" in browser.text("main")

        browser.driver.get(sign_in_link(stack.dashboard_url, stack.secret, "customer", caller="marlow"))
        sentence = f"You sent {statuses.total()} requests in the last hour; {statuses[429]} ("
        browser.until(lambda: sentence in browser.text("#sentence"), f"the customer's page to say {sentence!r}")


@pytest.mark.services
def test_the_demonstration_ends_with_equal_counts(tmp_path: Path) -> None:
    """What the client saw is what the record holds, for every caller, inside the plan or far over it."""
    report = tmp_path / "demo.json"
    command = [sys.executable, "-m", "tallygate", "demo", "--seconds", "6", "--rate", "300", "--copies", "3"]
    command += ["--report", str(report), *_ANY_PORT_WORDS]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=200, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(report.read_text())
    assert document["equal"] is True
    assert document["decisions"] == sum(caller["sent"] for caller in document["callers"])
    counts = {caller["caller"]: caller for caller in document["callers"]}
    assert counts["acme"]["http_429"] == counts["birch"]["http_429"] == counts["ember"]["http_429"] == 0
    assert min(counts["cobalt"]["http_429"], counts["dahlia"]["http_429"]) > 0
    assert (counts["acme"]["k"], counts["birch"]["k"], counts["fern"]["k"]) == (3, 1, 2)
