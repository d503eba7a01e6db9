"""Starts the sidecar: settings, policy and addresses are judged before it serves, in this process or in workers.

Never records by itself: the sink is given, as the name of the function that makes it, to each worker.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence

from enforcer.config import EnforcerConfig
from enforcer.errors import ConfigError, PolicyError
from enforcer.sidecar.config import SidecarConfig
from enforcer.sidecar.listening import Listening, allow_files, name_of
from enforcer.sidecar.serving import MakeSink, Work, configure_log, obey_at_once, run
from enforcer.sidecar.workers import Workers
from enforcer.wiring import judge_start

log = logging.getLogger("enforcer")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command without a record; see `serve`."""
    parser = argparse.ArgumentParser(prog="python -m enforcer.sidecar", description=__doc__)
    add_options(parser)
    options = parser.parse_args(arguments)
    return serve(listen=options.listen, workers=options.workers)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What both commands take."""
    parser.add_argument("--listen", metavar="ADDRESS", help="host:port or unix:/path (TALLYGATE_SIDECAR)")
    parser.add_argument("--workers", type=int, metavar="N", help="processes, each its own copy (1)")


def serve(*, listen: str | None = None, workers: int | None = None, sink: MakeSink | None = None) -> int:
    """Serve until SIGTERM or SIGINT, and end within `SidecarConfig.stop_ms`.

    Returns:
        0 after an orderly end, 1 if it cannot listen, or if a worker did not end in order, 2 if a setting or the
        policy is wrong.
    """
    obey_at_once()
    configure_log()
    try:
        config = SidecarConfig.from_env(listen=listen, workers=workers)
        judge_start(EnforcerConfig.from_env())
        allow_files(config.connections)
    except (ConfigError, PolicyError) as fault:
        sys.stderr.write(f"sidecar: {fault}\n")
        return 2
    try:
        listening = Listening(config)
    except OSError as fault:
        sys.stderr.write(f"sidecar: {fault.strerror}\n")
        return 1
    try:
        # An order to end may come from the first of these lines on, and must not leave a Unix socket's file behind.
        log.info("the sidecar listens on %s", listening.name, extra={"action": "listening"})
        for number, own in enumerate(listening.own):
            log.info("worker %d is watched on %s", number, name_of(own), extra={"action": "listening"})
        work = Work(config, sink)
        return run(work, listening.of(0)) if config.workers == 1 else Workers(work, listening).run()
    finally:
        listening.close()
