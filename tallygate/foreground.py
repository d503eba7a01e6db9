"""``tallygate up`` in a terminal: starts the local stack, says where everything is, and ends it on Ctrl-C."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import threading
from pathlib import Path

from dashboard.links import sign_in_link
from tallygate.config import RunningStack, announce, withdraw
from tallygate.ending import Ended, ignore_end, raise_at_end
from tallygate.up import LocalStack, StackOptions

_CHECK_S = 0.2


def run_up(options: StackOptions) -> int:
    """Serve until SIGINT, SIGTERM or SIGHUP; returns 0 then.

    Raises:
        EngineError: something did not start, or an engine ended.
    """
    raise_at_end()
    stack = LocalStack(options)
    try:
        stack.start()
        running = RunningStack(stack.dashboard_url, stack.secret, os.getpid())
        announce(running)
        try:
            command = command_words(sys.argv[0], executable=sys.executable, folder=Path.cwd())
            sys.stdout.write(welcome(stack, command=command))
            sys.stdout.flush()
            _watch(stack)
        finally:
            withdraw(running)
    except Ended:
        sys.stderr.write("\ntallygate: ending …\n")
    finally:
        # A second Ctrl-C would leave the stop half done; it takes five seconds at most.
        ignore_end()
        stack.stop()
    return 0


def command_words(called_as: str, *, executable: str, folder: Path) -> str:
    """What to type in `folder` for the command that runs now: its name if the shell finds it, else its path.

    Args:
        called_as: the program's path as it was started; that of a module under ``python -m``.
        executable: the Python interpreter.
        folder: where the reader's shell is.
    """
    program = Path(called_as)
    if program.name != "tallygate":
        program = Path(executable).with_name("tallygate")
        if not program.exists():
            return f"{shlex.quote(executable)} -m tallygate"
    program = folder / program
    found = shutil.which("tallygate")
    if found is not None and (folder / found) == program:
        return "tallygate"
    return shlex.quote(str(program.relative_to(folder) if program.is_relative_to(folder) else program))


def welcome(stack: LocalStack, *, command: str) -> str:
    """Where everything is, how to reach it, and what becomes of the record; `command` is how to call `tallygate`."""
    settings = stack.environ
    rows = [
        ("pages", stack.dashboard_url, ""),
        ("support, signed in", sign_in_link(stack.dashboard_url, stack.secret, "support"), ""),
        ("Valkey", settings["TALLYGATE_OWNER_URL"], "TALLYGATE_OWNER_URL"),
        ("Kafka", settings["TALLYGATE_KAFKA"], "TALLYGATE_KAFKA"),
        ("ClickHouse", settings["TALLYGATE_CLICKHOUSE"], "TALLYGATE_CLICKHOUSE"),
        ("logs", str(stack.log_dir), ""),
    ]
    width = max(len(address) for _, address, variable in rows if variable)
    lines = [
        f"  {name:<20}{address:<{width if variable else 0}}  {variable}".rstrip() for name, address, variable in rows
    ]
    return "\n".join(
        [
            "",
            "Tallygate is up. Ctrl-C ends it.",
            "",
            *lines,
            "",
            f"  A customer's page: {command} link --caller NAME",
            *_fate(stack.options, command),
            "",
            "",
        ]
    )


def _fate(options: StackOptions, command: str) -> tuple[str, ...]:
    if options.data_dir is not None:
        return (f"  The record stays in {options.data_dir} when this ends.",)
    return (
        "  The record is thrown away when this ends. To keep one:",
        f"  {command} up --broker kafka --data-dir DIR",
    )


def _watch(stack: LocalStack) -> None:
    pause = threading.Event()
    while True:
        stack.check()
        pause.wait(_CHECK_S)
