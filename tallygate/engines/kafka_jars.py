"""Apache Kafka's jars in the user's cache: resolved by Maven once per version, moved into place whole or not at all."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tallygate.engines.config import cache_root
from tallygate.engines.errors import EngineFailed, EngineMissing

KAFKA_VERSION = "4.3.1"

#: log4j-slf4j-impl is the binding for SLF4J 1.x, which Kafka uses; log4j-slf4j2-impl would bind nothing.
_ARTIFACTS = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.2"),
)
_MAVEN_TIMEOUT_S = 900


def jars_dir() -> Path:
    """The folder with all jars; it exists only when they are complete."""
    return cache_root() / f"kafka-{KAFKA_VERSION}" / "lib"


def find_program(name: str, why: str) -> str:
    """The path of a program.

    Raises:
        EngineMissing: it is not on PATH; the message starts with ``why``.
    """
    path = shutil.which(name)
    if path is None:
        raise EngineMissing(f"{why}, but there is no `{name}` on PATH")
    return path


def install_jars() -> bool:
    """Fetch the jars unless they are there; False if they were. Runs beside each other wait for the first one.

    Raises:
        EngineMissing: no Maven.
        EngineFailed: Maven could not resolve them; carries what it said.
    """
    target = jars_dir().parent
    target.parent.mkdir(parents=True, exist_ok=True)
    with _only_one(target.with_name(f"{target.name}.lock")):
        if jars_dir().is_dir():
            return False
        with tempfile.TemporaryDirectory(prefix=f"{target.name}.", dir=target.parent) as scratch:
            complete = Path(scratch) / "complete"
            _resolve(Path(scratch), complete / "lib")
            complete.replace(target)
    return True


def _resolve(scratch: Path, lib: Path) -> None:
    maven = find_program("mvn", "Apache Kafka's jars are fetched by Maven")
    (scratch / "pom.xml").write_text(_pom())
    argv = [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={lib}"]
    try:
        done = subprocess.run(
            argv,
            cwd=scratch,
            capture_output=True,
            text=True,
            check=False,
            timeout=_MAVEN_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise EngineFailed(f"Maven did not resolve Apache Kafka within {_MAVEN_TIMEOUT_S} s") from error
    if done.returncode != 0:
        raise EngineFailed(
            f"Maven could not resolve Apache Kafka {KAFKA_VERSION}:\n{(done.stdout + done.stderr).strip()}"
        )
    if not any(lib.glob(f"kafka_2.13-{KAFKA_VERSION}.jar")):
        raise EngineFailed(f"Maven succeeded, but copied no kafka_2.13-{KAFKA_VERSION}.jar")


def _pom() -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>"
        for group, artifact, version in _ARTIFACTS
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>tallygate</groupId><artifactId>kafka-jars</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{dependencies}</dependencies></project>\n"
    )


@contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
