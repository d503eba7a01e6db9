"""What the command takes from the environment, and what its children inherit. Reads it once, and only here."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tallygate.engines.config import cache_root


@dataclass(frozen=True, slots=True)
class RunningStack:
    """Where a running `tallygate up` serves its pages, and the secret that signs its links."""

    dashboard_url: str
    secret: str


def current_environ() -> dict[str, str]:
    """The environment as it is now."""
    return dict(os.environ)


def secret_from(environ: Mapping[str, str]) -> str:
    """The dashboard's signing secret: TALLYGATE_SECRET, or a new one that ends with this process."""
    return environ.get("TALLYGATE_SECRET") or secrets.token_urlsafe(32)


def announce(stack: RunningStack) -> None:
    """Let `tallygate link` on this machine find the running stack; readable by its user only."""
    path = _announcement()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(json.dumps({"dashboard_url": stack.dashboard_url, "secret": stack.secret}))


def withdraw(stack: RunningStack) -> None:
    """Take the announcement back, unless another stack has made its own since."""
    if announced() == stack:
        _announcement().unlink(missing_ok=True)


def announced() -> RunningStack | None:
    """The stack that announced itself last; None when there is none."""
    try:
        found = json.loads(_announcement().read_text())
        return RunningStack(str(found["dashboard_url"]), str(found["secret"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _announcement() -> Path:
    return cache_root() / "up.json"
