"""What Envoy's descriptors mean: the policy's section ``envoy``, and the caller, scope and cost that it makes of one.

Never makes a scope of a raw path, never decides, and knows nothing of gRPC.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Annotated, NamedTuple, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from enforcer.core.routes import UNMATCHED_SCOPE, RouteMatcher
from enforcer.policies.limits import MAX_COST_TOKENS, MAX_NAME_LENGTH, LimitMode, LimitName, PolicyModel

_PART = re.compile(r"\{\{|\}\}|\{([^{}]+)\}|([{}])|[^{}]+")
#: What descriptor keys that hold a raw path are called: a scope made of one would be as many scopes as there are paths.
_RAW_PATHS = frozenset({"path", ":path", "raw_path", "uri", "url", "request_path", "request_uri"})


class Template(NamedTuple):
    """A text with descriptor keys in braces: `texts` and `keys` in turn, first and last a text."""

    texts: tuple[str, ...]
    keys: tuple[str, ...]

    def fill(self, values: Mapping[str, str]) -> str:
        """The text for these values. Raises `KeyError` for a key that is missing."""
        parts = [self.texts[0]]
        for key, text in zip(self.keys, self.texts[1:], strict=True):
            parts += (values[key], text)
        return "".join(parts)


def parse_template(text: str) -> Template:
    """Read ``{key}`` as a descriptor's key, ``{{`` and ``}}`` as braces. Raises `ValueError` for a lone brace."""
    texts, keys = [""], []
    for part in _PART.finditer(text):
        if part[2] is not None:
            raise ValueError(f"has a lone {part[2]!r}; allowed: {{key}}, and {{{{ or }}}} for a brace")
        if part[1] is not None:
            keys.append(part[1])
            texts.append("")
        else:
            texts[-1] += {"{{": "{", "}}": "}"}.get(part[0], part[0])
    return Template(tuple(texts), tuple(keys))


def _template(text: str) -> str:
    if not text.isprintable():
        raise ValueError("has control characters; allowed: printable characters")
    parse_template(text)
    return text


def _scope_template(text: str) -> str:
    raw = sorted(_RAW_PATHS & {key.lower() for key in parse_template(_template(text)).keys})
    if raw:
        raise ValueError(
            f"would make a scope of the raw path {raw[0]!r}; allowed: route, which finds the declared route of a path"
        )
    return text


_Text = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME_LENGTH)]
_TemplateText = Annotated[_Text, AfterValidator(_template)]
_ScopeText = Annotated[_Text, AfterValidator(_scope_template)]


class Unmatched(StrEnum):
    """What Envoy is told of a descriptor that no rule is for."""

    ALLOW = "allow"
    """It is not over any limit. Counted, and logged once."""
    REFUSE = "refuse"
    """It is over the limit."""


class RouteKeys(PolicyModel):
    """The descriptor keys that hold method and raw path: the scope is the policy's route that matches them."""

    method: _Text
    path: _Text


class DescriptorRule(PolicyModel):
    """What one kind of descriptor means. It is for those which have all keys that it names.

    Attributes:
        caller: a template such as ``{account}``. A descriptor whose keys for it are all empty has no identity: it is
            charged to the policy's anonymous caller.
        scope: a template such as ``{route}`` or ``login``; ``default`` if neither it nor `route` is given.
        route: keys of method and path instead of a scope.
        cost: where Envoy sends no hits_addend; None for what the policy says of the scope.
        mode: in shadow it refuses nothing: its limits, in buckets of their own, only say what they would refuse.
    """

    caller: _TemplateText
    scope: _ScopeText | None = None
    route: RouteKeys | None = None
    cost: int | None = Field(default=None, ge=0, le=MAX_COST_TOKENS)
    mode: LimitMode = Field(default=LimitMode.ENFORCE, strict=False)

    @model_validator(mode="after")
    def _one_scope(self) -> Self:
        if self.scope is not None and self.route is not None:
            raise ValueError("has scope and route; allowed: one of them")
        return self


class Domain(PolicyModel):
    """The rules of one of Envoy's rate-limit domains by name: the first that is for a descriptor is applied."""

    rules: dict[LimitName, DescriptorRule] = Field(min_length=1)


class EnvoySection(PolicyModel):
    """The section ``envoy`` of a policy."""

    domains: dict[_Text, Domain] = Field(min_length=1)
    unmatched: Unmatched = Field(default=Unmatched.ALLOW, strict=False)


class Charged(NamedTuple):
    """Who is charged for a descriptor, and how much; cost None for what the policy says of the scope.

    In shadow nobody is: it is only found out what would be refused.
    """

    caller: str
    scope: str
    cost: int | None
    in_shadow: bool = False


class ReadyRule(NamedTuple):
    """A rule made ready."""

    keys: frozenset[str]
    caller: Template
    scope_of: Callable[[Mapping[str, str]], str]
    cost: int | None
    in_shadow: bool


class Mapper:
    """Applies one section to descriptors. Built once for each policy."""

    def __init__(self, section: EnvoySection | None, *, anonymous: str, routes: Iterable[str]) -> None:
        """Make the rules ready.

        Args:
            section: of the policy; without one no descriptor has a rule.
            anonymous: the policy's anonymous caller.
            routes: the policy's declared routes.
        """
        self.refuses_unmatched = section is not None and section.unmatched is Unmatched.REFUSE
        self._anonymous = anonymous
        self._matcher = RouteMatcher(routes)
        self._domains: dict[str, tuple[ReadyRule, ...]] = {}
        for name, domain in section.domains.items() if section is not None else ():
            self._domains[name] = tuple(self._ready(rule) for rule in domain.rules.values())

    def knows(self, domain: str) -> bool:
        """Whether there are rules for this domain."""
        return domain in self._domains

    def charged(self, domain: str, entries: Mapping[str, str]) -> Charged | None:
        """Who is charged for a descriptor; None if no rule is for it."""
        for rule in self._domains.get(domain, ()):
            if rule.keys <= entries.keys():
                nameless = rule.caller.keys and not any(entries[key] for key in rule.caller.keys)
                caller = self._anonymous if nameless else rule.caller.fill(entries)
                return Charged(caller, rule.scope_of(entries), rule.cost, rule.in_shadow)
        return None

    def _ready(self, rule: DescriptorRule) -> ReadyRule:
        caller, in_shadow = parse_template(rule.caller), rule.mode is LimitMode.SHADOW
        if rule.route is not None:
            method, path = rule.route.method, rule.route.path
            keys = frozenset({*caller.keys, method, path})
            return ReadyRule(keys, caller, self._by_route(method, path), rule.cost, in_shadow)
        scope = parse_template("default" if rule.scope is None else rule.scope)
        return ReadyRule(frozenset({*caller.keys, *scope.keys}), caller, scope.fill, rule.cost, in_shadow)

    def _by_route(self, method: str, path: str) -> Callable[[Mapping[str, str]], str]:
        match = self._matcher.match

        def scope_of(entries: Mapping[str, str]) -> str:
            return match(entries[method], entries[path].partition("?")[0]) or UNMATCHED_SCOPE

        return scope_of
