"""Reads a policy document from YAML and reports all of its faults at once, each with its line.

Never applies a policy, and never keeps one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
_SHOWN_CHARACTERS = 60


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
    policy: Policy | None = None
    if isinstance(data, dict):
        places = {place for place, _ in document.faulty}
        located = [*_validation_faults(data), *reference_faults(data)]
        faults += [document.fault(place, message) for place, message in _once(located) if place not in places]
        if not faults:
            policy = Policy.model_validate(data)
    elif not faults:
        faults.append(PolicyFault("(file)", 1, "must be a mapping with the fields " + ", ".join(Policy.model_fields)))
    if policy is None:
        raise PolicyError(source, sorted(faults, key=lambda fault: (fault.line or 0, fault.path)))
    return policy


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
        return PolicyFault(".".join(str(part) for part in place) or "(file)", self.lines.get(near, 1), message)

    def read(self, content: bytes) -> Any:
        """The document's values; None, with a fault noted, where it is not YAML at all."""
        try:
            root = yaml.compose(content.decode("utf-8"), Loader=yaml.SafeLoader)
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
            if key in values:
                duplicate = (*place, f"{key} (again)")
                self.lines[duplicate] = line
                self.faulty.append((duplicate, f"{key!r} stands here twice; first in line {self.lines[(*place, key)]}"))
                continue
            self.lines[(*place, key)] = line
            values[key] = self._value(value_node, (*place, key))
        return values

    def _scalar(self, node: yaml.ScalarNode, place: Location) -> Any:
        try:
            return self._constructor.construct_object(node)
        except (yaml.YAMLError, ValueError, OverflowError) as error:
            reason = error.problem if isinstance(error, yaml.MarkedYAMLError) else str(error)
            self.faulty.append((place, f"cannot be read: {reason}"))
            return None


def _validation_faults(data: dict[str, Any]) -> Iterator[tuple[Location, str]]:
    """Faults of single fields, as `Policy` finds them; those between fields come from `reference_faults`."""
    try:
        Policy.model_validate(data)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            if detail["loc"]:
                yield _place(detail["loc"]), _sentence(detail)


def _place(loc: tuple[str | int, ...]) -> Location:
    return tuple(part for part in loc if part != "[key]")


def _sentence(detail: ErrorDetails) -> str:
    place = _place(detail["loc"])
    if detail["type"] == "extra_forbidden":
        return f"unknown field; allowed: {', '.join(_allowed_fields(place[:-1]))}"
    if detail["type"] == "missing":
        return "is missing"
    shown = repr(detail["input"])
    shown = shown if len(shown) <= _SHOWN_CHARACTERS else shown[:_SHOWN_CHARACTERS] + "…"
    return f"is {shown}; {detail['msg'][0].lower()}{detail['msg'][1:]}"


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
