"""Serves the dashboard with uvicorn: the process's entry point, which says what is wrong before it serves.

Never logs a request's address: a sign-in link would be in it.
"""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Mapping
from dataclasses import replace

import uvicorn

from dashboard.app import create_app
from dashboard.config import DashboardConfig
from dashboard.store import Limits, Record, RecordUnavailable
from enforcer.errors import ConfigError

_log = logging.getLogger(__name__)


def main(environ: Mapping[str, str] | None = None) -> int:
    """Serve until the process is told to end.

    Returns:
        0 after an orderly end, 1 if the port is taken, 2 if a setting is wrong.
    """
    set_up_log()
    try:
        config = DashboardConfig.from_env(environ)
    except ConfigError as fault:
        sys.stderr.write(f"dashboard: {fault}\n")
        return 2
    try:
        listener = bind(config.host, config.port)
    except OSError as fault:
        sys.stderr.write(
            f"dashboard: cannot listen on {config.host}:{config.port}: {fault.strerror or fault}. "
            "End what is listening there, or set TALLYGATE_DASHBOARD to another host:port.\n"
        )
        return 1
    host, port = listener.getsockname()[:2]
    report_record(config)
    _log.info("the dashboard is at %s", replace(config, host=host, port=port).base_url)
    settings = uvicorn.Config(
        create_app(config), log_config=None, access_log=False, server_header=False, timeout_graceful_shutdown=3
    )
    with listener:
        uvicorn.Server(settings).run(sockets=[listener])
    return 0


def set_up_log() -> None:
    """Log to stderr; of an outage only what the gate says, not the driver's line for each time that nobody answers."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("clickhouse_connect").setLevel(logging.ERROR)


def bind(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        OSError: the port is taken, or the address is not one of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


def report_record(config: DashboardConfig) -> None:
    """Say in the log whether the record can be read; the pages are served either way and say it too."""
    record = Record(config.clickhouse, Limits())
    try:
        with record.of_fleet() as ask:
            ask("fleet_complete", from_s=0, to_s=1, since_s=0)
    except RecordUnavailable as fault:
        _log.error("the record cannot be read yet; pages will say so and try again: %s", fault)
    else:
        _log.info("the record is read from %s", record.address)
    finally:
        record.close()


if __name__ == "__main__":
    sys.exit(main())
