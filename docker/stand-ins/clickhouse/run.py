"""The embedded ClickHouse as a container: the user that CLICKHOUSE_USER and CLICKHOUSE_PASSWORD name, on all addresses.

Only for the stand-in image of the compose check.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tallygate.engines import clickhouse_front
from tallygate.engines.front.users import User, write_users

DATA = Path("/var/lib/clickhouse")
#: What the other containers call this one.
NAME = "clickhouse"


def main() -> int:
    """Serve until SIGTERM; returns the exit code."""
    given = os.environ  # noqa: TID251  the settings are those of the image that this one stands in for
    users = DATA / "users.json"
    write_users(users, [User.with_password(given["CLICKHOUSE_USER"], given["CLICKHOUSE_PASSWORD"])])
    address = "0.0.0.0"  # noqa: S104  of its container
    served = ["--data-dir", str(DATA), "--host", address, "--port", "8123", "--allow-host", NAME]
    return clickhouse_front.main([*served, "--users", str(users)])


if __name__ == "__main__":
    sys.exit(main())
