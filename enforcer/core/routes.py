"""Which declared route a request belongs to. Never looks at the caller, and never makes a scope of a raw path."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: The scope of requests that match no declared route.
UNMATCHED_SCOPE = "(unmatched)"
_PARAMETER = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*(:path)?\}")
_FALLBACK_METHODS = {"HEAD": "GET"}


class RouteMatcher:
    """Finds the declared route of a request: the most literal template that matches its method and path.

    Templates are ``METHOD /path/{parameter}``; ``{name:path}`` takes the rest of the path. HEAD counts as GET where
    no HEAD route matches.
    """

    __slots__ = ("_methods",)

    def __init__(self, routes: Iterable[str]) -> None:
        by_method: dict[str, list[str]] = {}
        for route in routes:
            method, path = route.split(" ", 1)
            by_method.setdefault(method, []).append(path)
        self._methods: dict[str, tuple[re.Pattern[str], tuple[str, ...]]] = {}
        for method, paths in by_method.items():
            ordered = sorted(paths, key=_literalness)
            pattern = re.compile("|".join(f"({_expression(path)})" for path in ordered))
            self._methods[method] = (pattern, tuple(f"{method} {path}" for path in ordered))

    def match(self, method: str, path: str) -> str | None:
        """The name of the matching route, or None."""
        found = self._methods.get(method)
        if found is not None:
            match = found[0].fullmatch(path)
            # No group stands inside another, so the last group that matched is the template that did.
            if match is not None and match.lastindex is not None:
                return found[1][match.lastindex - 1]
        other = _FALLBACK_METHODS.get(method)
        return self.match(other, path) if other is not None else None


def _expression(path: str) -> str:
    parts: list[str] = []
    at = 0
    for parameter in _PARAMETER.finditer(path):
        parts += [re.escape(path[at : parameter.start()]), "[^/]+" if parameter.group(1) is None else ".*"]
        at = parameter.end()
    return "".join([*parts, re.escape(path[at:])])


def _literalness(path: str) -> tuple[tuple[int, ...], str]:
    """Sorts literal segments before parameters, and those before a parameter that takes the rest."""
    kinds: list[int] = []
    for segment in path[1:].split("/"):
        parameter = _PARAMETER.fullmatch(segment)
        kinds.append(0 if parameter is None else 1 if parameter.group(1) is None else 2)
    return tuple(kinds), path
