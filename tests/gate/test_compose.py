"""docker-compose.yml and the image, held against the code: no engine is needed to see that they disagree."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from aggregator.config import AggregatorConfig, ClickHouseDsn
from aggregator.recorder import loop
from aggregator.settler import process as settling
from aggregator.worker import running
from dashboard.config import DashboardConfig
from enforcer.config import EnforcerConfig
from enforcer.policies import load_policy
from enforcer.sidecar.config import DEFAULT_LISTEN, SidecarConfig
from stream.config import StreamConfig
from tallygate import cli
from tallygate.engines.apache_kafka import MESSAGE_MAX_BYTES
from tallygate.engines.kafka_jars import KAFKA_VERSION
from tests import containers

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = sorted(name for name, service in SERVICES.items() if service["image"].startswith("tallygate:"))
ENGINES = sorted(set(SERVICES) - set(OURS))
_VARIABLE = re.compile(r"\$\{(\w+):\?[^}]*\}")
_OPTIONAL = re.compile(r"\$\{(\w+):-\}")
_PROJECT = "COMPOSE_PROJECT_NAME"
_FILLED = {"TALLYGATE_SECRET": "s" * 32, "CLICKHOUSE_PASSWORD": "Pass-word_1"}


def _environ(name: str, **filled: str) -> dict[str, str]:
    """The environment of a service, as compose would fill it."""
    given: dict[str, str] = SERVICES[name].get("environment", {})
    full = {key: _VARIABLE.sub(lambda found: _FILLED[found[1]], value) for key, value in given.items()}
    return {key: _OPTIONAL.sub(lambda found: filled.get(found[1], ""), value) for key, value in full.items()}


def _sample() -> dict[str, str]:
    return dict(re.findall(r"^(\w+)=(.*)$", (ROOT / ".env.example").read_text(), re.MULTILINE))


def test_every_part_of_the_system_is_there() -> None:
    """The file is how a reader runs the whole thing."""
    assert ENGINES == ["clickhouse", "kafka", "valkey"]
    assert OURS == ["dashboard", "migrate", "recorder", "settler", "sidecar", "signals", "topics", "worker"]
    assert SERVICES["worker"]["deploy"]["replicas"] == 2


@pytest.mark.parametrize("name", OURS)
def test_commands_are_commands_of_ours(name: str) -> None:
    """A renamed subcommand would leave a container that restarts for ever."""
    options = cli._parser().parse_args(SERVICES[name]["command"])
    assert options.command == SERVICES[name]["command"][0]


@pytest.mark.parametrize("name", OURS)
def test_settings_are_read_by_the_code(name: str) -> None:
    """A misspelt setting is silently the default, which is this machine and not the container beside."""
    code = "\n".join(
        path.read_text()
        for package in ("enforcer", "stream", "aggregator", "dashboard")
        for path in (ROOT / package).rglob("config.py")
    )
    assert {setting for setting in _environ(name) if f'"{setting}"' not in code} == set()


def test_settings_are_valid_and_lead_to_the_other_services() -> None:
    """The code itself judges them, as it will in the container."""
    for name in ("recorder", "worker", "signals", "settler", "migrate"):
        config = AggregatorConfig.from_env(_environ(name))
        assert config.kafka == "kafka:9092"
        assert config.clickhouse == ClickHouseDsn(
            "clickhouse", 8123, "tallygate", SERVICES["clickhouse"]["environment"]["CLICKHOUSE_USER"], "Pass-word_1"
        )
        assert config.partitions >= SERVICES["worker"]["deploy"]["replicas"]
    assert StreamConfig.from_env(_environ("topics")).bootstrap == "kafka:9092"
    dashboard = DashboardConfig.from_env(_environ("dashboard"))
    assert (dashboard.host, dashboard.port) == ("0.0.0.0", 8321)
    sidecar = _environ("sidecar")
    assert SidecarConfig.from_env(sidecar).listen == "0.0.0.0:8320"
    assert StreamConfig.from_env(sidecar).bootstrap == "kafka:9092"
    assert StreamConfig.from_env(sidecar).partitions == AggregatorConfig.from_env(_environ("recorder")).partitions
    assert EnforcerConfig.from_env(sidecar).owner_url == "redis://valkey:6379/0"
    assert "TALLYGATE_CLICKHOUSE" not in sidecar, "it need not know the record's password"


def test_how_long_the_record_is_kept_is_said_once_for_all_who_must_agree() -> None:
    """A settler that knows less than the recorder drops would recount minutes that are half gone, and bill them."""
    said = dict(re.findall(r"^#(TALLYGATE_\w+)=(\d+)$", (ROOT / ".env.example").read_text(), re.MULTILINE))
    default = AggregatorConfig.from_env({})
    as_said = AggregatorConfig.from_env(said)
    assert len(said) == 5
    assert (as_said.keep, as_said.settle_days) == (default.keep, default.settle_days), "the sample shows the defaults"
    for name in ("recorder", "settler", "worker", "signals", "migrate"):
        assert AggregatorConfig.from_env(_environ(name)).keep == default.keep
        other = AggregatorConfig.from_env(_environ(name, **{one: str(int(value) + 1) for one, value in said.items()}))
        assert (other.keep.admitted_days, other.settle_days) == (15, 14)


def test_the_sidecars_policy_is_one_and_is_followed() -> None:
    """A file that is mounted alone stays the old one when an editor puts another in its place."""
    mount, _ = SERVICES["sidecar"]["volumes"]
    here, there, mode = mount.split(":")
    policy = Path(_environ("sidecar")["TALLYGATE_POLICY"])
    assert (mode, str(policy.parent)) == ("ro", there)
    assert (ROOT / here).is_dir()
    assert load_policy(ROOT / here / policy.name).version >= 1


def test_the_sidecars_spool_outlives_its_container() -> None:
    """What Kafka had not taken of a sidecar that is gone is shipped by the next; its user must own the folder."""
    _, mount = SERVICES["sidecar"]["volumes"]
    volume, folder = mount.split(":")
    assert volume in COMPOSE["volumes"]
    assert StreamConfig.from_env(_environ("sidecar")).spool_dir == Path(folder)
    dockerfile = (ROOT / "docker" / "Dockerfile").read_text()
    assert f"install -d -m 0700 -o 10001 -g 10001 {folder}" in dockerfile
    assert "USER 10001:10001" in dockerfile


def test_published_ports_are_the_defaults_of_the_settings_and_of_this_machine_only() -> None:
    """A gateway on this machine needs no settings; nobody beyond it reaches an open Kafka."""
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published == {
        "valkey": ["127.0.0.1:16379:6379"],
        "kafka": ["127.0.0.1:19092:19092"],
        "clickhouse": ["127.0.0.1:18123:8123"],
        "dashboard": ["127.0.0.1:8321:8321"],
        "sidecar": [f"{DEFAULT_LISTEN}:8320"],
    }
    defaults = AggregatorConfig.from_env({})
    assert (defaults.kafka, defaults.clickhouse.port) == ("127.0.0.1:19092", 18123)
    assert "OUTSIDE://127.0.0.1:19092" in SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]


def test_images_are_pinned_and_the_ones_that_the_tests_use() -> None:
    """What is tested is what is deployed; "latest" is something else every week."""
    assert {name: SERVICES[name]["image"] for name in ENGINES} == {
        "valkey": containers.VALKEY_IMAGE,
        "kafka": containers.KAFKA_IMAGE,
        "clickhouse": containers.CLICKHOUSE_IMAGE,
    }
    assert all(re.search(r":\d+\.\d+", SERVICES[name]["image"]) for name in ENGINES)
    assert SERVICES["kafka"]["image"].endswith(f":{KAFKA_VERSION}")
    assert int(SERVICES["kafka"]["environment"]["KAFKA_MESSAGE_MAX_BYTES"]) == MESSAGE_MAX_BYTES


def test_clickhouse_image_is_of_the_embedded_engines_version() -> None:
    """Two releases differ in what they deduplicate; the tests run on one of them."""
    locked = re.search(r"^chdb-core==(\d+\.\d+)\.", (ROOT / "requirements" / "dev.txt").read_text(), re.MULTILINE)
    assert locked is not None
    assert containers.CLICKHOUSE_IMAGE.endswith(f":{locked[1]}")


def test_services_wait_for_what_they_need() -> None:
    """A condition on a service without a health check never comes true."""
    for name, service in SERVICES.items():
        for needed, how in service.get("depends_on", {}).items():
            assert needed in SERVICES, f"{name} waits for {needed}"
            if how["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[needed]
            elif name == "sidecar":
                assert how["condition"] == "service_started", "a decision waits for nobody"
            else:
                assert how["condition"] == "service_completed_successfully"
                assert SERVICES[needed]["restart"] == "on-failure"
    assert all("healthcheck" in SERVICES[name] for name in (*ENGINES, "dashboard", "sidecar"))


def test_health_checks_start_no_java() -> None:
    """One takes seconds of a core, every time; while Kafka itself starts, they are what it waits for."""
    for name, service in SERVICES.items():
        assert not any(str(word).endswith(".sh") for word in service.get("healthcheck", {}).get("test", [])), name


def test_no_secret_is_in_the_file_and_every_one_is_in_the_sample() -> None:
    """A default password is the password."""
    text = (ROOT / "docker-compose.yml").read_text()
    asked = set(_VARIABLE.findall(text))
    optional = set(_OPTIONAL.findall(text))
    assert set(re.findall(r"\$\{(\w+)", text)) == asked | optional
    assert optional == set(re.findall(r"^#(\w+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))
    assert dict.fromkeys(asked, "") == {name: value for name, value in _sample().items() if name != _PROJECT}
    assert ".env" in (ROOT / ".gitignore").read_text().split()


def test_file_is_read_by_every_compose_that_systems_ship() -> None:
    """Compose 1.29, which Debian 12 ships, refuses the whole file for one key at the top that it does not know."""
    assert {key for key in COMPOSE if not key.startswith("x-")} == {"services", "volumes"}
    assert _sample()[_PROJECT] == "tallygate"


@pytest.mark.parametrize("name", OURS)
def test_our_containers_end_when_they_are_asked_to(name: str) -> None:
    """As process 1, one without a handler ignores SIGTERM, and is killed after the whole grace period."""
    assert SERVICES[name]["init"] is True


def test_our_containers_have_time_to_write_what_they_hold() -> None:
    """Killed in the middle of its last write, a process has to read and count the same again at its next start."""
    sidecar_s = SidecarConfig.from_env(_environ("sidecar")).stop_ms / 1e3
    limits = {
        "worker": running._STOP_S,
        "recorder": loop._STOP_S + loop._LEAVE_S,
        "settler": settling._STOP_S,
        "signals": running._STOP_S,  # the worker's own way to run and to stop
        "sidecar": sidecar_s,
    }
    for name, longest_s in limits.items():
        grace = re.fullmatch(r"(\d+)s", SERVICES[name]["stop_grace_period"])
        assert grace is not None
        assert int(grace[1]) >= longest_s + 5


@pytest.mark.parametrize("name", OURS)
def test_our_containers_have_no_rights_to_spare(name: str) -> None:
    """They need a network and nothing else."""
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["build"] == {"context": ".", "dockerfile": "docker/Dockerfile"}


def test_image_installs_what_is_locked_copies_what_exists_and_is_not_root() -> None:
    """Files that the builder cannot see fail the build on the reader's machine, not here."""
    text = (ROOT / "docker" / "Dockerfile").read_text()
    assert re.search(r"^ARG PYTHON_IMAGE=python:3\.11-slim", text, re.MULTILINE)
    fetched = re.findall(r"pip .*install .*-r \S+", text)
    assert len(fetched) == 2
    assert all("--require-hashes --only-binary :all:" in one for one in fetched)
    assert re.search(r"^USER (?!0|root)\S+", text, re.MULTILINE)
    visible = set(re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    copied = " ".join(re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)).split()
    assert set(copied) == visible
    assert [] == [name for name in copied if not (ROOT / name).exists()]


def test_image_has_the_compiled_modules_and_no_compiler() -> None:
    """Without them the settler replays a hundredth of what it could; a build that lost them must not pass for one."""
    build, final = re.split(
        r"^FROM \$\{PYTHON_IMAGE\}$", (ROOT / "docker" / "Dockerfile").read_text(), flags=re.MULTILINE
    )
    assert build.rstrip().endswith("/opt/tallygate/bin/python -m tallygate.compiled")
    assert " gcc " in build
    assert re.findall(r"^(?:RUN|COPY) (\S+)", final, re.MULTILINE) == ["--from=build", "useradd"]
    assert "**/*.so" in (ROOT / ".dockerignore").read_text().split(), "what this machine compiled is not the image's"
    locked = re.findall(r"^(\S+)==", (ROOT / "requirements" / "build.txt").read_text(), re.MULTILINE)
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert {re.split(r"\W", name)[0] for name in wanted} <= set(locked)


def test_compose_check_can_stand_in_for_every_image() -> None:
    """It is what runs this file where no registry can be reached; an image without a stand-in would end it there."""
    folders = sorted(path.parent.name for path in (ROOT / "docker" / "stand-ins").glob("*/Dockerfile"))
    assert folders == sorted([*ENGINES, "python"])
    script = (ROOT / "scripts" / "compose-check.sh").read_text()
    locked = re.findall(r"^  locked (.+?) >", script, re.MULTILINE)
    pins = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements" / "dev.txt").read_text(), re.MULTILINE))
    assert locked
    assert {name for names in locked for name in names.split()} <= pins


@pytest.mark.parametrize("script", sorted(ROOT.glob("scripts/*.sh")), ids=lambda path: path.name)
def test_scripts_can_be_run(script: Path) -> None:
    """The compose check is not part of the gate; that it starts at all is."""
    assert script.stat().st_mode & 0o111
    read = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True, check=False)
    assert (read.returncode, read.stderr) == (0, "")


def test_the_stand_in_for_clickhouse_answers_to_the_name_that_the_others_call_it() -> None:
    """It refuses requests under any other name, as whoever makes a name point at a server may not use it."""
    text = (ROOT / "docker" / "stand-ins" / "clickhouse" / "run.py").read_text()
    named = re.search(r'^NAME = "(\w+)"$', text, re.MULTILINE)
    called = re.search(r"@(\w+):8123/", (ROOT / "docker-compose.yml").read_text())
    assert named is not None
    assert called is not None
    assert called[1] == named[1]
    assert '"--allow-host", NAME' in text
