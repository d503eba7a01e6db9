"""The script on a real server keeps the contract; and what only a server can do wrong."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest
import redis

from enforcer.core.dials import DEFAULT_DIALS
from enforcer.errors import ConfigError, OwnerUnavailable
from enforcer.messages import Answer, Ask, AskFault
from enforcer.owners.keys import bucket_key
from enforcer.owners.redis import RedisOwner
from enforcer.types import Plan
from tallygate.engines.valkey import Valkey
from tests.contract.desk import Desk, RedisDesk, answers
from tests.contract.owner import OwnerContract
from tests.contract.owner_faults import OwnerFaults
from tests.contract.spoiled import SPOILED

PLAN = Plan("standard", 100.0, 200)


class TestRedisOwner(OwnerContract, OwnerFaults):
    """All of it, on the script with a clock in hand."""

    @pytest.fixture
    def desk(self, valkey_url: str) -> Iterator[Desk]:
        """With a clock in hand."""
        made = RedisDesk(valkey_url)
        yield made
        made.close()


@pytest.fixture
def owner(valkey_url: str) -> Iterator[RedisOwner]:
    """The shipped script, on the server's own clock."""
    made = RedisOwner(valkey_url, timeout_s=5.0)
    yield made
    made.close()


@pytest.fixture
def client(valkey_url: str) -> Iterator[redis.Redis]:
    made = redis.Redis.from_url(valkey_url)
    yield made
    made.close()


def _ask(caller: str, *, ask_no: int = 1, waiting: int = 1, plan: Plan = PLAN) -> Ask:
    return Ask(caller, "rate", plan, "gw-1/1", ask_no, (), waiting, 0, 0.0, waiting, 0.0)


def test_owner_keeps_the_servers_time(owner: RedisOwner, client: redis.Redis, request: pytest.FixtureRequest) -> None:
    """The server's clock is the only one that refills."""
    before_s, before_us = client.time()
    answer = answers(owner.ask([_ask(request.node.name)]))[0]
    after_s, after_us = client.time()
    assert before_s * 1_000_000 + before_us <= answer.owner_now_us <= after_s * 1_000_000 + after_us
    assert answer.grant is not None
    assert answer.grant.expires_at_us - answer.grant.issued_at_us == DEFAULT_DIALS.expiry_us


def test_script_is_loaded_again_after_the_server_forgot_it(owner: RedisOwner, client: redis.Redis) -> None:
    """A restarted or failed-over server does not know it; no ask may be lost or doubled by that."""
    for ask_no in range(1, 4):
        client.script_flush()
        answered = answers(owner.ask([_ask(f"flush-{n}", ask_no=ask_no, waiting=2) for n in range(10)]))
        assert all(answer.grant is not None and answer.grant.size == 2 for answer in answered)


def test_key_outlives_grants_and_goes_when_the_bucket_is_full(owner: RedisOwner, client: redis.Redis) -> None:
    """Earlier, and a caller would get a second burst; never, and made-up callers fill the server."""
    slow = Plan("daily", 1 / 86_400, 5)
    owner.ask([_ask("ttl", waiting=100), _ask("ttl-slow", waiting=3, plan=slow)])
    grants_ms = (DEFAULT_DIALS.expiry_us + DEFAULT_DIALS.grace_us + DEFAULT_DIALS.keep_us) / 1_000
    keep_ms = DEFAULT_DIALS.keep_us / 1_000
    assert grants_ms - 5_000 <= client.pttl(bucket_key("ttl", "rate")) <= grants_ms + keep_ms
    full_ms = 3 * 86_400_000
    assert full_ms - 5_000 <= client.pttl(bucket_key("ttl-slow", "rate")) <= full_ms + keep_ms


def test_bucket_is_one_key_of_a_few_hundred_bytes(owner: RedisOwner, client: redis.Redis) -> None:
    """Millions of callers fit one node, and a cluster finds all of a bucket in one place."""
    asks = [_ask("size", ask_no=n) for n in range(1, 2)]
    owner.ask(asks)
    key = bucket_key("size", "rate")
    assert client.type(key) == b"hash"
    used = client.memory_usage(key)
    assert used is not None
    assert used < 600


@pytest.mark.parametrize("mapping", SPOILED.values(), ids=SPOILED)
def test_bad_bucket_is_a_fault_of_its_ask_and_never_an_answer_that_means_nothing(
    owner: RedisOwner, client: redis.Redis, mapping: dict[str, bytes] | None
) -> None:
    """Whatever stands under one caller's key, the others of its round trip are answered, and so is the next ask."""
    key = bucket_key("bad", "rate")
    client.delete(key)
    if mapping is None:
        client.set(key, "not ours", px=60_000)
    else:
        for field, value in mapping.items():
            client.hset(key, field, value)
    stood = client.dump(key)
    for ask_no in (1, 2):
        before, outcome, after = owner.ask([_ask("fine"), _ask("bad", ask_no=ask_no), _ask("fine-too")])
        assert isinstance(before, Answer)
        assert isinstance(outcome, AskFault)
        assert isinstance(after, Answer)
    assert client.dump(key) == stood, "half of an ask was written"
    client.delete(key)
    assert answers(owner.ask([_ask("bad", ask_no=3)]))[0].grant is not None


def test_server_that_refuses_is_no_fault_of_a_bucket(owner: RedisOwner, fresh_valkey: Valkey) -> None:
    """Else every caller of a replica would be counted as a bucket gone bad, one by one."""
    local = redis.Redis.from_url(fresh_valkey.url)
    local.set(bucket_key("bad", "rate"), "not ours")
    local.replicaof("127.0.0.1", "1")
    refused = RedisOwner(fresh_valkey.url, timeout_s=5.0)
    with pytest.raises(OwnerUnavailable, match="read only"):
        refused.ask([_ask("bad"), _ask("fine")])
    refused.close()
    local.close()


def test_probe_passes_by_a_spoiled_probe_bucket(valkey_url: str, client: redis.Redis) -> None:
    """Else one bad key would keep a whole fleet from finding its owner again, for ever."""
    prober = RedisOwner(valkey_url, timeout_s=5.0)
    key = bucket_key("", "probe-0")
    client.set(key, "not ours", px=60_000)
    with pytest.raises(OwnerUnavailable, match="WRONGTYPE"):
        prober.probe()
    prober.probe()
    client.delete(key)
    prober.close()


def test_closed_owner_refuses(owner: RedisOwner) -> None:
    """A call after close must not open a connection that nobody closes."""
    owner.close()
    with pytest.raises(OwnerUnavailable, match="closed"):
        owner.probe()


class SlowServer:
    """Accepts, reads and answers late, or with what it is told; one connection after the other."""

    def __init__(self, answers: list[tuple[float, bytes]]) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.connections = 0
        self._answers = answers
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(timeout=5)

    def _serve(self) -> None:
        while not self._stop.is_set():
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection:
            try:
                while (received := connection.recv(65_536)) and not self._stop.is_set():
                    if b"EVALSHA" in received:
                        delay_s, answer = self._answers.pop(0)
                        self._stop.wait(delay_s)
                        connection.sendall(answer)
                    else:
                        connection.sendall(b"+OK\r\n" * (received.count(b"CLIENT") + received.count(b"HELLO")))
            except OSError:
                return


def test_late_answer_is_never_read(request: pytest.FixtureRequest) -> None:
    """The answer to the ask that timed out would be taken for the answer to the next one."""
    answer = struct.pack("<11d", 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0)
    server = SlowServer([(3.0, b"+LATE\r\n"), (0.0, b"$%d\r\n%b\r\n" % (len(answer), answer))])
    request.addfinalizer(server.close)
    owner = RedisOwner(f"redis://127.0.0.1:{server.port}/0", timeout_s=1.0)
    with pytest.raises(OwnerUnavailable):
        owner.probe()
    owner.probe()
    assert server.connections == 2
    owner.close()


def test_nobody_listening_is_unavailable_and_names_the_address_without_password() -> None:
    """The message goes to logs and events."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    owner = RedisOwner(f"redis://robot:hunter2@127.0.0.1:{port}/0", timeout_s=1.0)
    with pytest.raises(OwnerUnavailable) as raised:
        owner.ask([_ask("any")])
    assert 1 == str(raised.value).count(f"127.0.0.1:{port}")
    assert f"redis://127.0.0.1:{port}/0" in str(raised.value)
    assert "hunter2" not in str(raised.value)
    assert f"{port}" not in raised.value.cause, "who knows the address says it beside the cause"
    assert "Connection refused" in raised.value.cause
    assert owner.address == f"redis://127.0.0.1:{port}/0"


def test_wrong_password_is_unavailable_and_not_shown(valkey_url: str) -> None:
    """An ACL that was changed while we run degrades like an outage; it must not print the secret."""
    address = valkey_url.split("://", 1)[1].rsplit("@", 1)[-1]
    owner = RedisOwner(f"redis://robot:hunter2@{address}", timeout_s=2.0)
    with pytest.raises(OwnerUnavailable) as raised:
        owner.probe()
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://host:6379/0", "scheme"),
        ("host:6379", "scheme"),
        ("redis://", "no host"),
        ("redis://:hunter2@", "no host"),
        ("redis://robot:hunter2@host:notaport/0", "no number"),
        ("robot:hunter2@host:6379", "scheme"),
        ("redis://host/db", "database"),
        ("redis://host/0?decode_responses=true", "decode_responses"),
        ("redis://host/0?password=hunter2", "password"),
        ("unix://", "socket"),
        ("", "scheme"),
        ("rediss://host/0?ssl_cert_reqs=maybe", "option"),
    ],
)
def test_wrong_address_is_a_config_error_without_the_password(url: str, said: str) -> None:
    """Found at start, in words, not at the first request."""
    with pytest.raises(ConfigError, match=said) as raised:
        RedisOwner(url, timeout_s=0.1)
    assert "hunter2" not in str(raised.value)


def test_timeout_must_be_above_zero() -> None:
    """0 would mean to wait for ever."""
    with pytest.raises(ConfigError, match="timeout"):
        RedisOwner("redis://host/0", timeout_s=0.0)
