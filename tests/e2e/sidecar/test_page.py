"""The commands of docs/ways-in/sidecar.md, run as they stand but for the port."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys

import pytest

from tallygate.engines.ports import free_port
from tallygate.engines.process import accepts_connections
from tallygate.engines.valkey import Valkey
from tests.e2e.sidecar.conftest import ROOT
from tests.processes import wait_until

pytestmark = pytest.mark.services


def test_commands_of_the_page_do_what_it_says(fresh_valkey: Valkey) -> None:
    """A reader copies them."""
    page = (ROOT / "docs/ways-in/sidecar.md").read_text()
    snippets = dict(re.findall(r"<!-- (run|ask) -->\n```sh\n(.+)\n```", page))
    port = str(free_port())
    first, *command = shlex.split(snippets["run"].replace("8320", port))
    setting, _, value = first.partition("=")
    assert (setting, command[0]) == ("TALLYGATE_POLICY", "tallygate")
    environ = {**os.environ, setting: value, "TALLYGATE_OWNER_URL": fresh_valkey.url}
    # No log is there: the sidecar serves all the same, and sends nothing to that of another.
    environ["TALLYGATE_KAFKA"] = "127.0.0.1:1"
    sidecar = subprocess.Popen([sys.executable, "-m", *command], env=environ, cwd=ROOT)
    try:
        wait_until(lambda: accepts_connections("127.0.0.1", int(port)), 20, what="the sidecar")
        asked = subprocess.run(
            shlex.split(snippets["ask"].replace("8320", port)), capture_output=True, text=True, check=True, timeout=20
        )
        answer = json.loads(asked.stdout)
        assert answer["allowed"] is True
        paragraph = page.partition("with the verdict:")[2].partition("Only a request")[0]
        assert set(re.findall("`([a-z_]+)`", paragraph)) == set(answer) - {"detail"}
    finally:
        sidecar.terminate()
        assert sidecar.wait(15) == 0
