"""Answers that nobody can take: a script that goes by the exit code must not read them as a verdict."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_RUN = """
import sys, types
from tallygate import cli
def answer(words):
    for _ in range(int(words[0])):
        sys.stdout.write("agrees\\n")
    return int(words[1])
action = types.ModuleType("tests_action")
action.main = answer
sys.modules["tests_action"] = action
cli._DELEGATED = dict.fromkeys(cli._DELEGATED, ("tests_action", ""))
sys.exit(cli.main(sys.argv[1:]))
"""


def _run(to: str, *words: str) -> tuple[int, str]:
    """Exit code and standard error of a command; its standard output as a shell is told, or a pipe without a reader."""
    reader, pipe = os.pipe()
    os.close(reader)
    shell = ["bash", "-c", f'"$@" {to}', "bash", sys.executable, "-c", _RUN, *words]
    with os.fdopen(pipe, "wb") as unread:
        done = subprocess.run(shell, check=False, stdout=unread, stderr=subprocess.PIPE, text=True, timeout=60)
    return done.returncode, done.stderr


@pytest.mark.parametrize("lines", ["1", "200000"])
@pytest.mark.parametrize(
    ("to", "why"),
    [(">&-", "it is closed"), (">/dev/full", "No space left on device"), ("", "its reader is gone")],
)
def test_answer_that_cannot_be_written_is_no_verdict(to: str, why: str, lines: str) -> None:
    """1 would mean that the record does not agree: an alarm that is false."""
    said = f"tallygate audit: the answer could not be written to standard output: {why}\n"
    assert (3, said) == _run(to, "audit", lines, "1")


@pytest.mark.parametrize("command", ["audit", "replay", "retention", "dead-letters"])
def test_every_command_that_answers_is_held_to_it(command: str) -> None:
    """Each has exit codes of its own."""
    assert 3 == _run(">/dev/full", command, "1", "0")[0]
    assert (1, "") == _run(">/dev/null", command, "1", "1")


def test_command_that_has_nothing_to_write_needs_no_output() -> None:
    """As an export into a file."""
    assert (0, "") == _run(">&-", "audit", "0", "0")
