"""``tallygate link``: prints an address that signs someone in. Stores nothing."""

from __future__ import annotations

import re
import sys
from typing import Literal

from dashboard.config import DashboardConfig
from dashboard.links import sign_in_link
from enforcer.errors import ConfigError
from tallygate.config import RunningStack, announced, current_environ

_WRONG_CALL = 2
_ADDRESS = re.compile(r"https?://[^/?#\s]+[^?#\s]*\Z")


def print_link(*, role: Literal["customer", "support"] | None, caller: str | None, base_url: str | None) -> int:
    """Print the link; with TALLYGATE_SECRET from the environment, or of the `tallygate up` that runs here.

    The pages are at ``base_url``, else where TALLYGATE_DASHBOARD says, else those of the `tallygate up` that began
    last. Returns 2 where the role and the caller do not fit together, or `base_url` is no address.

    Raises:
        ConfigError: there is no secret, or a setting is wrong.
        InvalidField: the caller is no name that a caller can have.
    """
    fault = _fault(role, caller, base_url)
    if fault is not None:
        sys.stderr.write(f"tallygate: {fault}\n")
        return _WRONG_CALL
    secret, url = _signer(base_url)
    link = sign_in_link(base_url or url, secret, "support" if caller is None else "customer", caller)
    sys.stdout.write(link + "\n")
    return 0


def _fault(role: str | None, caller: str | None, base_url: str | None) -> str | None:
    if caller == "":
        return "--caller is empty; allowed: the name of the caller whose usage the customer sees"
    if role == "customer" and caller is None:
        return "--role customer needs --caller NAME: whose usage the customer sees"
    if role == "support" and caller is not None:
        return "--caller does not go with --role support: support may look up any caller"
    if base_url is not None and _ADDRESS.match(base_url) is None:
        return f"--base-url is {base_url!r}; allowed: the address of the pages, such as http://127.0.0.1:8321"
    return None


def _signer(base_url: str | None) -> tuple[str, str]:
    """The secret that signs the link, and where the pages are that know it."""
    environ = current_environ()
    running = _chosen(base_url, announced())
    secret = environ.get("TALLYGATE_SECRET") or (running.secret if running is not None else None)
    if secret is None:
        raise ConfigError(
            "no `tallygate up` runs here, and TALLYGATE_SECRET is not set: start one, or set TALLYGATE_SECRET to the "
            "secret of the dashboard that the link is for"
        )
    config = DashboardConfig.from_env({**environ, "TALLYGATE_SECRET": secret})
    if running is not None and running.secret == secret and not environ.get("TALLYGATE_DASHBOARD", "").strip():
        return secret, running.dashboard_url
    return secret, config.base_url


def _chosen(base_url: str | None, running: list[RunningStack]) -> RunningStack | None:
    """The stack whose pages are at that address, else the one that began last; says so where there are several."""
    for stack in running:
        if base_url is not None and stack.dashboard_url == base_url.rstrip("/"):
            return stack
    if len(running) > 1 and base_url is None:
        others = ", ".join(stack.dashboard_url for stack in running[1:])
        sys.stderr.write(
            f"tallygate: {len(running)} of `tallygate up` run here; this is for the one that began last. "
            f"--base-url chooses another: {others}\n"
        )
    return running[0] if running else None
