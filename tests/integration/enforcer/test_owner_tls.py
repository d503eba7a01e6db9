"""Real servers over TLS, with the documented address, options and permissions; and each way in which it can fail."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from enforcer.errors import ConfigError, OwnerUnavailable
from enforcer.messages import Answer, Ask
from enforcer.owners.addresses import owners_from_url
from enforcer.owners.asking import ask_server
from enforcer.owners.port import Owners
from enforcer.types import Plan
from tests.integration.enforcer.certificates import Authority
from tests.integration.enforcer.servers import answers, free_port, is_open, spawn_redis
from tests.integration.enforcer.test_owner_permissions import CLUSTER_RULES, HOWTO, RULES
from tests.processes import wait_until

pytestmark = pytest.mark.services

PLAN = Plan("still", 1e-9, 200)
CALLERS = [f"caller-{number}" for number in range(12)]
_ADDRESS = re.search(r"^(rediss://tallygate:\S+)$", HOWTO.read_text(), re.MULTILINE)
assert _ADDRESS is not None
DOCUMENTED = _ADDRESS[1]


@dataclass(frozen=True, slots=True)
class Pki:
    """Two authorities: ours, and one that nobody trusts."""

    ours: Authority
    other: Authority
    client: tuple[Path, Path]

    @property
    def options(self) -> str:
        """As an address takes them."""
        return DOCUMENTED.split("?")[1].replace("/path/ca.pem", str(self.ours.ca)).replace(
            "/path/client.pem", str(self.client[0])
        ).replace("/path/client.key", str(self.client[1]))  # fmt: skip


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """Made once."""
    folder = tmp_path_factory.mktemp("pki")
    ours = Authority(folder, "ours")
    return Pki(ours, Authority(folder, "other"), ours.sign("client"))


class TlsServers:
    """Servers that speak TLS and want client certificates; each also has a plain port, for the test itself."""

    def __init__(self, folder: Path, pki: Pki) -> None:
        self._folder, self._pki = folder, pki
        self.running: list[subprocess.Popen[bytes]] = []
        self.plain: dict[int, int] = {}

    def files(self, certificate: tuple[Path, Path] | None = None) -> dict[str, object]:
        """The options that name certificate, key and authority."""
        made = certificate or self._pki.ours.sign(f"server-{free_port()}")
        return {"tls_cert_file": made[0], "tls_key_file": made[1], "tls_ca_cert_file": self._pki.ours.ca}

    def start(self, certificate: tuple[Path, Path] | None = None, **options: object) -> int:
        """TLS port of a new server."""
        tls, plain = free_port(), free_port()
        self.plain[tls] = plain
        chosen = {**self.files(certificate), **options}
        self.running.append(spawn_redis(self._folder / str(tls), port=plain, tls_port=tls, **chosen))
        wait_until(lambda: answers(plain), 20, what="a server")
        ask_server(f"redis://127.0.0.1:{plain}/0", ("ACL", "SETUSER", *RULES, *CLUSTER_RULES), timeout_s=5)
        return tls

    def start_sentinel(self, master: int, password: str) -> int:
        """Port of a sentinel that watches this master, over TLS as well, and wants a password."""
        port = free_port()
        rules = self._folder / f"sentinel-{port}.conf"
        lines = [f"{name.replace('_', '-')} {value}" for name, value in self.files().items()]
        lines += ["port 0", f"tls-port {port}", "bind 127.0.0.1", "tls-replication yes", f"requirepass {password}"]
        rules.write_text("\n".join([*lines, f"sentinel monitor main 127.0.0.1 {master} 1", ""]))
        argv = ["redis-server", str(rules), "--sentinel"]
        self.running.append(subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        wait_until(lambda: is_open(port), 20, what="a sentinel")
        return port

    def is_settled(self, port: int) -> bool:
        """Whether a node of a cluster sees all slots served."""
        info = ask_server(f"redis://127.0.0.1:{self.plain[port]}/0", ("CLUSTER", "INFO"), timeout_s=5)
        return b"cluster_state:ok" in info

    def stop(self) -> None:
        """End all."""
        for process in self.running:
            process.kill()
            process.wait()


@pytest.fixture
def servers(tmp_path: Path, pki: Pki) -> Iterator[TlsServers]:
    """None yet."""
    made = TlsServers(tmp_path, pki)
    yield made
    made.stop()


def _assert_served(owners: Owners) -> None:
    try:
        for ask_no in (1, 2):
            for caller in CALLERS:
                asked = Ask(caller, "rate", PLAN, "gw-1/1", ask_no, (), 1, 0, 0.0, 1, 0.0)
                (outcome,) = owners.nodes[owners.place(caller, "rate")].ask([asked])
                assert isinstance(outcome, Answer)
            owners.refresh()
    finally:
        for owner in owners.nodes.values():
            owner.close()
        owners.close()


def _user(password: str = "a-long-password") -> str:
    return f"tallygate:{password}@"


def test_the_documented_address_is_served_over_one_connection(servers: TlsServers, pki: Pki) -> None:
    """Whoever copies it must not find out in production what is missing; and a handshake for each ask is too dear."""
    port = servers.start()
    address = DOCUMENTED.split("?")[0].replace("6379", str(port))
    owners = owners_from_url(f"{address}?{pki.options}", timeout_s=5.0)
    _assert_served(owners)
    stats = ask_server(f"redis://127.0.0.1:{servers.plain[port]}/0", ("INFO", "commandstats"), timeout_s=5)
    assert b"cmdstat_hello:calls=1," in stats


def test_ring_cluster_and_sentinel_are_served_over_tls(servers: TlsServers, pki: Pki) -> None:
    """Every server behind the address is asked in the same way, and sentinels with credentials of their own."""
    ports = [servers.start() for _ in range(2)]
    ring = ",".join(f"rediss://{_user()}127.0.0.1:{port}/0?{pki.options}" for port in ports)
    _assert_served(owners_from_url(ring, timeout_s=5.0))
    sentinel = servers.start_sentinel(ports[0], "an-other")
    watched = f"rediss+sentinel://{_user()}127.0.0.1:{sentinel}/main?{pki.options}"
    _assert_served(owners_from_url(f"{watched}&sentinel_password=an-other", timeout_s=5.0))
    wrong = owners_from_url(f"{watched}&sentinel_password=hunter2", timeout_s=5.0)
    with pytest.raises(
        OwnerUnavailable, match=r"no sentinel names its master: .*refused: AuthenticationError"
    ) as raised:
        next(iter(wrong.nodes.values())).probe()
    assert "hunter2" not in str(raised.value)
    masters = [
        servers.start(cluster_enabled="yes", cluster_port=free_port(), tls_cluster="yes", tls_replication="yes")
        for _ in range(3)
    ]
    files = ["--cacert", pki.ours.ca, "--cert", pki.client[0], "--key", pki.client[1]]
    argv = ["redis-cli", "--tls", *map(str, files), "--cluster", "create", *(f"127.0.0.1:{port}" for port in masters)]
    subprocess.run([*argv, "--cluster-yes"], check=True, capture_output=True, timeout=60)
    wait_until(lambda: all(map(servers.is_settled, masters)), 20, what="the cluster's agreement")
    cluster = owners_from_url(f"rediss+cluster://{_user()}127.0.0.1:{masters[0]}?{pki.options}", timeout_s=5.0)
    cluster.refresh()
    assert sorted(cluster.nodes) == sorted(f"rediss://127.0.0.1:{port}/0" for port in masters)
    _assert_served(cluster)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("authority", "no TLS connection: .*self-signed certificate in certificate chain"),
        ("expired", "no TLS connection: .*certificate has expired"),
        ("host", "no TLS connection: .*not valid for '127.0.0.1'"),
        ("no client certificate", "TLS|[Cc]onnection"),
        ("password", "it refused: AuthenticationError"),
    ],
)
def test_what_is_wrong_with_a_tls_connection_is_the_reason(
    servers: TlsServers, pki: Pki, wrong: str, said: str
) -> None:
    """Somebody has to find it from one line in the log of a gateway."""
    certificate = {
        "expired": lambda: pki.ours.sign("expired", days=-1),
        "host": lambda: pki.ours.sign("elsewhere", holds="DNS:elsewhere.example"),
    }.get(wrong, lambda: pki.ours.sign("fine"))()
    port = servers.start(certificate)
    options = pki.options
    if wrong == "authority":
        options = options.replace(str(pki.ours.ca), str(pki.other.ca))
    if wrong == "no client certificate":
        options = options.split("&")[0]
    password = "hunter2" if wrong == "password" else "a-long-password"
    owners = owners_from_url(f"rediss://{_user(password)}127.0.0.1:{port}/0?{options}", timeout_s=5.0)
    (owner,) = owners.nodes.values()
    with pytest.raises(OwnerUnavailable, match=said) as raised:
        owner.probe()
    assert password not in str(raised.value)
    owner.close()


def test_a_file_that_is_not_one_stops_the_start_and_is_named(pki: Pki) -> None:
    """Otherwise the gateway runs, and decides alone for ever."""
    for option, name in (
        ("ssl_ca_certs", pki.client[1]),
        ("ssl_certfile", pki.ours.ca),
        ("ssl_ca_certs", Path("/no.pem")),
    ):
        with pytest.raises(ConfigError, match=f"{option} {re.escape(str(name))}: ") as raised:
            owners_from_url(f"rediss://{_user()}127.0.0.1:1?{option}={name}", timeout_s=1.0)
        assert "a-long-password" not in str(raised.value)
