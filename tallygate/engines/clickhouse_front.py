"""``python -m tallygate.engines.clickhouse_front``: the embedded ClickHouse engine behind its HTTP interface.

One process owns the folder; every other process reaches it as it would reach a ClickHouse server. Listens on this
machine only, unless told otherwise.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import uvicorn

from tallygate.engines.front.app import Front, Limits
from tallygate.engines.front.session import Engine
from tallygate.engines.front.users import UserBook

_DEFAULT_MEMORY_MB = 3_072
_GRACE_S = 5
_KEEP_ALIVE_S = 120


def main(argv: list[str] | None = None) -> int:
    """Serve until SIGTERM; returns the exit code."""
    options = _parser().parse_args(argv)
    logging.basicConfig(level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    folder: Path = options.data_dir.resolve()
    _own_temporary_folder(folder / "tmp")
    users = UserBook.read(options.users)
    # The engine takes the name of a file here for a table; nothing is here.
    os.chdir(_empty_folder(folder / "tmp" / "empty"))

    def open_engine() -> Engine:
        return Engine(folder / "store", max_memory_bytes=options.max_memory_mb * 1024 * 1024)

    server = uvicorn.Server(
        uvicorn.Config(
            Front(open_engine, users, _limits(options), names=[options.host, *options.allow_host]),
            host=options.host,
            port=options.port,
            access_log=False,
            log_level="warning",
            lifespan="on",
            timeout_graceful_shutdown=_GRACE_S,
            # Longer than clients pause: one that sends on a connection which we are closing cannot know what happened.
            timeout_keep_alive=_KEEP_ALIVE_S,
            server_header=False,
        )
    )
    # The server ends in order at SIGTERM, and then raises the signal once more for whoever was there before it.
    signal.signal(signal.SIGTERM, lambda *_: None)
    server.run()
    return 0 if server.started else 3


def _limits(options: argparse.Namespace) -> Limits:
    return Limits(body_bytes=options.max_body_mb << 20, statement_bytes=options.max_statement_kb << 10)


def _own_temporary_folder(folder: Path) -> None:
    """Temporary files go beside the data, and those that a killed process left are removed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tempfile.tempdir = str(folder)


def _empty_folder(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tallygate.engines.clickhouse_front", description=__doc__)
    parser.add_argument(
        "--data-dir", type=Path, required=True, help="folder of the engine's data; one process at a time"
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on; at any but this machine's own, over plain HTTP, browsers leave out Sec-Fetch-Site, "
        "so that the GET of any page passes for a program: give --users with passwords there",
    )
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--users", type=Path, help="JSON file of users; without it, `default` with no password")
    parser.add_argument(
        "--max-memory-mb", type=int, default=_DEFAULT_MEMORY_MB, help="what all queries may use together"
    )
    parser.add_argument(
        "--max-body-mb", type=_whole, default=512, help="largest request body, before and after decompression"
    )
    parser.add_argument(
        "--max-statement-kb", type=_whole, default=1_024, help="longest statement, without an INSERT's rows"
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name that clients may call this server by, besides localhost and its address; may be repeated",
    )
    parser.add_argument("--log-level", default="warning", choices=["debug", "info", "warning", "error"])
    return parser


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1_048_576:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a whole number from 1 to 1048576")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
