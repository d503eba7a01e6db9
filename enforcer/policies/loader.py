"""Reads a policy document from YAML and reports all of its faults at once, each with its line.

Never applies a policy, and never keeps one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from enforcer.errors import PolicyError, PolicyFault
from enforcer.policies.limits import Location
from enforcer.policies.model import Policy, reference_faults

#: A policy of 20,000 named callers is about 1 MB.
MAX_POLICY_BYTES = 16 << 20
_MAX_DEPTH = 20
#: Where reading stops: brackets without end would cost more than their number.
_MOST_NESTED = 100
_SHOWN_CHARACTERS = 60
_TEXT_TAG = "tag:yaml.org,2002:str"
#: What PyYAML raises where a value does not have the form of its tag.
_UNREADABLE = (yaml.YAMLError, ValueError, OverflowError, LookupError, AttributeError, TypeError)


def read_policy(path: str | Path) -> bytes:
    """The bytes of a policy file. Raises `PolicyError` if it cannot be read; one that is too large is cut."""
    try:
        with Path(path).open("rb") as file:
            return file.read(MAX_POLICY_BYTES + 1)
    except OSError as error:
        reason = error.strerror or str(error)
        raise PolicyError(str(path), [PolicyFault("(file)", None, f"cannot be read: {reason}")]) from error


def parse_policy(content: bytes, *, source: str = "(policy)") -> Policy:
    """Validate one policy document, YAML in UTF-8. Raises `PolicyError` with all faults."""
    if len(content) > MAX_POLICY_BYTES:
        fault = f"is larger than {MAX_POLICY_BYTES:,} bytes"
        raise PolicyError(source, [PolicyFault("(file)", None, fault)])
    document = _Document()
    data = document.read(content)
    faults = list(document.faults)
    if isinstance(data, dict):
        policy, found = _validated(data)
        if policy is not None and not faults:
            return policy
        places = {place for place, _ in document.faulty}
        faults += [document.fault(place, message) for place, message in _once(found) if place not in places]
    elif not faults:
        faults.append(PolicyFault("(file)", 1, "must be a mapping with the fields " + ", ".join(Policy.model_fields)))
    raise PolicyError(source, sorted(faults, key=lambda fault: (fault.line or 0, fault.path)))


class _Bounded:
    """Of a YAML loader: the part that hears of each level, which ends the reading of one that is nested too deeply."""

    depth = 0

    def descend_resolver(self, _parent: object, _index: object) -> None:
        """One level deeper."""
        self.depth += 1
        if self.depth > _MOST_NESTED:
            raise RecursionError

    def ascend_resolver(self) -> None:
        """And back."""
        self.depth -= 1


class PythonLoader(_Bounded, yaml.SafeLoader):
    """Reads YAML where libyaml is not there."""


if yaml.__with_libyaml__:

    class FastLoader(_Bounded, yaml.CSafeLoader):
        """Reads YAML by libyaml, in a tenth of the time."""

    Loader: type[FastLoader | PythonLoader] = FastLoader
else:
    Loader = PythonLoader


class _Document:
    """Plain values of a YAML document, with the line on which each stands."""

    def __init__(self) -> None:
        self.lines: dict[Location, int] = {}
        self.faulty: list[tuple[Location, str]] = []
        self._seen: set[int] = set()
        self._constructor = yaml.SafeLoader("")

    @property
    def faults(self) -> list[PolicyFault]:
        """What is wrong with the document as YAML."""
        return [self.fault(place, message) for place, message in self.faulty]

    def fault(self, place: Location, message: str) -> PolicyFault:
        """A fault with the line of the nearest place that has one."""
        near = place
        while near and near not in self.lines:
            near = near[:-1]
        named = ".".join(str(part) for part in place) or "(file)"
        return PolicyFault(_utf8(named), self.lines.get(near, 1), _utf8(message))

    def read(self, content: bytes) -> Any:
        """The document's values; None, with a fault noted, where it is not YAML at all."""
        try:
            root = yaml.compose(content.decode("utf-8"), Loader=Loader)
        except UnicodeDecodeError as error:
            self.faulty.append(((), f"is not UTF-8 (byte {error.start})"))
            return None
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            self.lines[()] = mark.line + 1 if mark is not None else 1
            self.faulty.append(((), f"is not YAML: {error.problem or error.context}"))
            return None
        except yaml.YAMLError as error:
            self.faulty.append(((), f"is not YAML: {error}"))
            return None
        except RecursionError:
            self.faulty.append(((), "is nested too deeply"))
            return None
        return self._value(root, ()) if root is not None else {}

    def _value(self, node: yaml.Node, place: Location) -> Any:
        self.lines.setdefault(place, node.start_mark.line + 1)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, place)
        # Aliases could make a small file expand without end, and a fault in one would have two places.
        if id(node) in self._seen:
            self.faulty.append((place, "is an alias; write the value out"))
            return None
        self._seen.add(id(node))
        if len(place) >= _MAX_DEPTH:
            self.faulty.append((place, "is nested too deeply"))
            return None
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item, (*place, number)) for number, item in enumerate(node.value)]
        return self._mapping(node, place)

    def _mapping(self, node: yaml.Node, place: Location) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self.lines.setdefault((*place, "(key)"), line)
                self.faulty.append(((*place, "(key)"), "a key must be text"))
                continue
            # The text as it stands: a caller named 007 or `no` is that name, not a number or a truth value.
            key = key_node.value
            if not _is_text(key):
                self.lines[(*place, key)] = line
                self.faulty.append(((*place, key), _NO_TEXT))
                continue
            if key in values:
                duplicate = (*place, f"{key} (again)")
                self.lines[duplicate] = line
                self.faulty.append((duplicate, f"{key!r} stands here twice; first in line {self.lines[(*place, key)]}"))
                continue
            self.lines[(*place, key)] = line
            values[key] = self._value(value_node, (*place, key))
        return values

    def _scalar(self, node: yaml.ScalarNode, place: Location) -> Any:
        if not _is_text(node.value):
            self.faulty.append((place, _NO_TEXT))
            return None
        if node.tag == _TEXT_TAG:
            return node.value
        try:
            return self._constructor.construct_object(node)
        except _UNREADABLE as error:
            reason = error.problem if isinstance(error, yaml.MarkedYAMLError) else str(error)
            if isinstance(error, (LookupError, AttributeError, TypeError)):
                reason = f"{node.value[:_SHOWN_CHARACTERS]!r} does not have the form of its tag"
            self.faulty.append((place, f"cannot be read: {reason}"))
            return None


_NO_TEXT = "has half of a surrogate pair; allowed: characters that UTF-8 can hold"


def _is_text(value: str) -> bool:
    """Whether it can be stored, sent and logged: YAML's escapes can also write what is no character."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _utf8(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _validated(data: dict[str, Any]) -> tuple[Policy | None, list[tuple[Location, str]]]:
    """The policy; or None, and the faults of single fields as `Policy` finds them, then those between fields."""
    try:
        return Policy.model_validate(data), []
    except ValidationError as error:
        details = [detail for detail in error.errors(include_url=False) if detail["loc"]]
    return None, [*((_place(detail["loc"]), _sentence(detail)) for detail in details), *reference_faults(data)]


def _place(loc: tuple[str | int, ...]) -> Location:
    return tuple(part for part in loc if part != "[key]")


def _sentence(detail: ErrorDetails) -> str:
    place = _place(detail["loc"])
    if detail["type"] == "extra_forbidden":
        return f"unknown field; allowed: {', '.join(_allowed_fields(place[:-1]))}"
    if detail["type"] == "missing":
        return "is missing"
    given, message = detail["input"], detail["msg"]
    own = detail.get("ctx", {}).get("error")
    if isinstance(own, ValueError) and isinstance(given, Mapping):
        return str(own)
    shown = "empty" if given is None else repr(given)
    shown = shown if len(shown) <= _SHOWN_CHARACTERS else shown[:_SHOWN_CHARACTERS] + "…"
    if isinstance(own, ValueError):
        return f"is {shown}, which {own}"
    if detail["type"] in ("model_type", "dict_type"):
        what = (
            "the name of a plan, or a mapping with plan" if place[0] == "callers" and len(place) == 2 else "a mapping"
        )
        return f"is {shown}; allowed: {what}"
    return f"is {shown}; {message.replace('Input should be', 'allowed:').replace('String should', 'text must')}"


def _allowed_fields(place: Location) -> Sequence[str]:
    """Names of the fields that the mapping at `place` may have."""
    kind: Any = Policy
    for part in place:
        # What a mapping's keys are called is free; else the part names a field.
        kind = get_args(kind)[1] if get_origin(kind) is dict else kind.model_fields[str(part)].annotation
        if get_origin(kind) not in (None, dict):
            kind = next(argument for argument in get_args(kind) if _is_model(argument) or get_origin(argument) is dict)
        if get_origin(kind) is Annotated:
            kind = get_args(kind)[0]
    return sorted(kind.model_fields)


def _is_model(candidate: object) -> bool:
    return isinstance(candidate, type) and issubclass(candidate, BaseModel)


def _once(located: list[tuple[Location, str]]) -> Iterator[tuple[Location, str]]:
    seen: set[Location] = set()
    for place, message in located:
        if place not in seen:
            seen.add(place)
            yield place, message
