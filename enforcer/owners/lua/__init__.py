"""The owner's script, loaded as package data, and the frames in which it is spoken to."""

from __future__ import annotations

from importlib.resources import files


def grant_script() -> str:
    """Text of ``grant.lua``; its head is its contract."""
    return files(__name__).joinpath("grant.lua").read_text(encoding="utf-8")
