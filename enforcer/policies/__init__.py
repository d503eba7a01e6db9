"""Policies, of a file or of Redis: read them, check them, follow them."""

from __future__ import annotations

from enforcer.policies.loader import parse_policy
from enforcer.policies.sources import load_policy

__all__ = ["load_policy", "parse_policy"]
