"""``tallygate link``: prints an address that signs someone in. Stores nothing."""

from __future__ import annotations

import sys
from typing import Literal

from dashboard.config import DashboardConfig
from dashboard.links import sign_in_link
from enforcer.errors import ConfigError
from tallygate.config import announced, current_environ


def print_link(*, role: Literal["customer", "support"] | None, caller: str | None, base_url: str | None) -> int:
    """Print the link; with TALLYGATE_SECRET from the environment, or of the `tallygate up` that runs here.

    Raises:
        ConfigError: there is no secret, or a setting is wrong.
        InvalidField: the role and the caller do not fit together.
    """
    environ = current_environ()
    running = announced()
    if environ.get("TALLYGATE_SECRET"):
        config = DashboardConfig.from_env(environ)
        secret, url = config.secret, base_url or config.base_url
    elif running is not None:
        secret, url = running.secret, base_url or running.dashboard_url
    else:
        raise ConfigError(
            "TALLYGATE_SECRET is not set and no `tallygate up` runs here; set it to the dashboard's secret"
        )
    chosen = role or ("customer" if caller else "support")
    sys.stdout.write(sign_in_link(url, secret, chosen, caller) + "\n")
    return 0
