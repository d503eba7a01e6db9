"""``tallygate up`` in a terminal: starts the local stack, says where everything is, and ends it on Ctrl-C."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType

from dashboard.links import sign_in_link
from tallygate.config import RunningStack, announce, withdraw
from tallygate.up import LocalStack, StackOptions

_CHECK_S = 0.2
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_up(options: StackOptions) -> int:
    """Serve until SIGINT, SIGTERM or SIGHUP; returns 0 then.

    Raises:
        EngineError: something did not start, or an engine ended.
    """
    # SIGINT too: a shell starts background commands with it ignored.
    for number in _ENDING:
        signal.signal(number, _interrupt)
    stack = LocalStack(options)
    try:
        stack.start()
        running = RunningStack(stack.dashboard_url, stack.secret)
        announce(running)
        try:
            sys.stdout.write(welcome(stack))
            sys.stdout.flush()
            _watch(stack)
        finally:
            withdraw(running)
    except KeyboardInterrupt:
        sys.stderr.write("\ntallygate: ending …\n")
    finally:
        # A second Ctrl-C would leave the stop half done; it takes five seconds at most.
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)
        stack.stop()
    return 0


def welcome(stack: LocalStack) -> str:
    """Where everything is, and how to reach it."""
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
            "  A customer's page: tallygate link --caller NAME",
            "",
            "",
        ]
    )


def _watch(stack: LocalStack) -> None:
    pause = threading.Event()
    while True:
        stack.check()
        pause.wait(_CHECK_S)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
