"""Policy files: read them, check them. ``tallygate policy check FILE`` does so from the command line."""

from __future__ import annotations

from enforcer.policies.loader import load_policy, parse_policy

__all__ = ["load_policy", "parse_policy"]
