"""A credential is never a caller's id: a key that callers send is looked for wherever data comes to rest."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import redis
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from dashboard.links import sign_in_link
from tallygate.up import LocalStack, StackOptions
from tests.processes import wait_until
from tests.servers.running import running

_ANY_PORTS = StackOptions(owner_port=0, kafka_port=0, clickhouse_port=0, dashboard_port=0)
#: What callers send. The last four characters of the first stand in its id, which the documentation says.
KEY = "sk-live-9f86d081884c7d659a2feaa0c55ad015-tail"
STRANGE = ("sk-live-9f86d081884c7d65\x01", "sk-live-9f86d081884c7d65" * 400, "sk-live-9f86d081884c7d65, and another")
NEEDLES = (b"sk-live", b"9f86d081884c7d65")
SECRET = "the-secret-that-keys-the-hash"

_APP = f"""
from prometheus_client import CollectorRegistry, generate_latest

from enforcer.http.asgi import RateLimitMiddleware
from enforcer.keying import from_api_key
from enforcer.metrics.metrics import CopyMetrics
from enforcer.metrics.prometheus import PrometheusCollector
from stream import kafka_sink
from tallygate import build_limiter

metrics = CopyMetrics()
registry = CollectorRegistry()
registry.register(PrometheusCollector(metrics))


async def hello(scope, receive, send):
    body = generate_latest(registry) if scope["path"] == "/metrics" else b"hello"
    await send({{"type": "http.response.start", "status": 200, "headers": []}})
    await send({{"type": "http.response.body", "body": body}})


app = RateLimitMiddleware(
    hello,
    lambda: build_limiter(sink=kafka_sink, metrics=metrics),
    identify=from_api_key("x-api-key", {SECRET!r}),
    metrics=metrics,
)
"""
_POLICY = """
version: 1
plans:
  standard: {rate_per_s: 5, burst: 10}
default_plan: standard
"""


@contextmanager
def _gateway(stack: LocalStack, folder: Path) -> Iterator[str]:
    (folder / "keyed.py").write_text(_APP)
    (folder / "policy.yaml").write_text(_POLICY)
    settings = {**stack.environ, "TALLYGATE_POLICY": str(folder / "policy.yaml")}
    words = ("uvicorn", "--app-dir", str(folder), "keyed:app", "--port", "0")
    with running(*words, log=folder / "gateway.log", settings=settings) as server:
        yield server.address
        server.stop()


def _owner_bytes(url: str) -> bytes:
    with redis.Redis.from_url(url) as client:
        keys = list(client.scan_iter())
        return b"\n".join([*keys, *(bytes(client.dump(key) or b"") for key in keys)])


def _log_bytes(bootstrap: str) -> bytes:
    """Every message of every topic: key, headers and value."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "scan", "log_level": 0, "enable.partition.eof": True}
    )
    found: list[bytes] = []
    try:
        topics = consumer.list_topics(timeout=20).topics
        places = [
            TopicPartition(name, number, OFFSET_BEGINNING) for name in topics for number in topics[name].partitions
        ]
        consumer.assign(places)
        ended = 0
        while ended < len(places):
            message = consumer.poll(10)
            assert message is not None
            if message.error() is not None:
                ended += 1
                continue
            found += [message.key() or b"", message.value() or b""]
            found += [bytes(content or b"") for _, content in message.headers() or []]
    finally:
        consumer.close()
    return b"\n".join(found)


def _record_bytes(dsn: str) -> bytes:
    """Every row of every table."""
    server = urllib.parse.urlsplit(dsn)
    database = server.path.strip("/")

    def query(statement: str) -> bytes:
        answer = httpx.post(f"{server.scheme}://{server.netloc}/", params={"database": database}, content=statement)
        assert answer.status_code == 200, answer.text
        return answer.content

    tables = query(f"SELECT name FROM system.tables WHERE database = '{database}' FORMAT TSV").decode().split()
    assert "decisions" in tables
    return b"\n".join(query(f"SELECT * FROM {table} FORMAT TSV") for table in tables)


@pytest.mark.services
def test_a_key_that_callers_send_comes_to_rest_nowhere(tmp_path: Path) -> None:
    """Whoever can read Redis, Kafka, ClickHouse, a log, a page or a metric must not be able to call as another."""
    with LocalStack(_ANY_PORTS) as stack:
        with _gateway(stack, tmp_path) as gateway:
            answers = [httpx.get(gateway, headers={"x-api-key": key}) for key in [KEY] * 25 + list(STRANGE)]
            answers += [httpx.get(gateway, headers=[(b"x-api-key", KEY.encode()), (b"x-api-key", b"sk-live-2")])]
            assert {200, 429} <= {answer.status_code for answer in answers}
            refused = next(answer for answer in answers if answer.status_code == 429)
            pages = [httpx.get(f"{gateway}/metrics").content]
        pages += [answer.content + repr(answer.headers).encode() for answer in answers]
        environ = stack.environ
        wait_until(lambda: b"key-" in _record_bytes(environ["TALLYGATE_CLICKHOUSE"]), 30, what="the record")
        with httpx.Client(base_url=stack.dashboard_url, follow_redirects=True) as client:
            client.get(sign_in_link(stack.dashboard_url, stack.secret, "support"))
            request_id = refused.json()["request_id"]
            wait_until(lambda: "key-" in client.get("/support", params={"q": request_id}).text, 30, what="the page")
            pages += [client.get("/support", params={"q": request_id}).content]
        places = {
            "owner": _owner_bytes(environ["TALLYGATE_OWNER_URL"]),
            "log": _log_bytes(environ["TALLYGATE_KAFKA"]),
            "record": _record_bytes(environ["TALLYGATE_CLICKHOUSE"]),
            "logs": b"\n".join(path.read_bytes() for path in stack.log_dir.rglob("*.log"))
            + (tmp_path / "gateway.log").read_bytes(),
            "pages": b"\n".join(pages),
        }
    for place, content in places.items():
        assert len(content) > 100, f"nothing was looked at in {place}"
        assert b"key-" in content or place == "logs", (
            f"the caller's id is not in {place}: the wrong bytes were looked at"
        )
        for needle in (*NEEDLES, SECRET.encode()):
            assert needle not in content, f"{needle!r} stands in {place}"
