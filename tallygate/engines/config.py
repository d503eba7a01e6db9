"""What the engines take from the environment: the user's cache folder, and what their children inherit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def cache_root() -> Path:
    """``$XDG_CACHE_HOME/tallygate``, or ``~/.cache/tallygate``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tallygate"


def child_environ(changes: Mapping[str, str]) -> dict[str, str]:
    """Our environment with some variables set: what a child process gets."""
    return {**os.environ, **changes}
