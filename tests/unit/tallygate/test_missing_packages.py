"""An install without an extra: what is missing is told with what brings it."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("words", "package", "extras"),
    [
        (["sidecar"], "uvicorn", "sidecar,stream"),
        (["sidecar", "--kafka"], "numpy", "sidecar,stream"),
        (["envoy"], "confluent_kafka", "envoy,stream"),
        (["recorder"], "numpy", "local"),
    ],
)
def test_a_missing_package_is_told_with_the_extras_of_its_command(words: list[str], package: str, extras: str) -> None:
    """The whole machine's engines, a gigabyte, are no cure for a missing web server."""
    done = _without(package, f"from tallygate.cli import main; sys.exit(main({words!r}))")
    assert (1, "") == (done.returncode, done.stdout)
    assert done.stderr == f"tallygate: {words[0]} needs the package {package!r}: pip install 'tallygate[{extras}]'\n"


@pytest.mark.parametrize("package", ["numpy", "confluent_kafka"])
def test_the_log_without_its_packages_names_its_extra(package: str) -> None:
    """Nobody knows by a bare `numpy` what to install for `kafka_sink`."""
    done = _without(package, "from stream import kafka_sink")
    said = f"ModuleNotFoundError: the log needs the package {package!r}: pip install 'tallygate[stream]'"
    assert (1, said) == (done.returncode, done.stderr.splitlines()[-1])


def _without(package: str, code: str) -> subprocess.CompletedProcess[str]:
    hidden = (
        "import sys\nclass Hidden:\n    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] == {package!r}:\n"
        f"            raise ModuleNotFoundError('No module named ' + repr(name), name=name)\n"
        f"sys.meta_path.insert(0, Hidden())\n{code}"
    )
    return subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, check=False, timeout=60)
