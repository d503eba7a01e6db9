"""The page of guarantees promises nothing that no test shows."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

_PAGE = Path(__file__).parents[2] / "docs" / "guarantees.md"
_HEAD = ["what happens", "what holds", "lost at most, and where it is said", "shown by"]
_SHOWN = re.compile(r"\[(\w+)\]\((\.\./tests/[\w/]+\.py)\)")


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _promises() -> list[list[str]]:
    """The rows of all tables of promises: those under the head above."""
    found: list[list[str]] = []
    inside = False
    for line in _PAGE.read_text("utf-8").splitlines():
        inside = line.startswith("|") and (inside or _cells(line) == _HEAD)
        if inside and not line.startswith("|---") and _cells(line) != _HEAD:
            found.append(_cells(line))
    return found


@cache
def _names(path: Path) -> frozenset[str]:
    """What is defined in a file of tests: functions, methods, and names that are assigned."""
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    return frozenset(
        defined | {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    )


@pytest.mark.parametrize("row", _promises(), ids=lambda row: re.sub(r"\W+", "-", row[0])[:60])
def test_every_promise_names_tests_that_exist(row: list[str]) -> None:
    """Who relies on a promise must be able to read what shows it."""
    assert 4 == len(row)
    assert all(row)
    shown = _SHOWN.findall(row[3])
    assert row[3] == ", ".join(f"[{name}]({path})" for name, path in shown), "a cell of tests holds nothing else"
    assert [] == [name for name, path in shown if name not in _names((_PAGE.parent / path).resolve())]


def test_page_has_a_row_for_every_fault_that_the_record_must_outlive() -> None:
    """A promise that was dropped silently would be missed by nobody."""
    told = " ".join(" ".join(row[:3]).lower() for row in _promises())
    faults = """
        killed while kafka is away; restarted while kafka is away; disk is full; disk hangs; away
        for hours; deleted and made anew; the recorder is killed; the recorder is frozen; two
        recorders; the worker is killed; the worker is frozen; two workers; second stage is killed;
        settler is killed; two settlers; is frozen; stopped and started again; sends a block twice;
        cut anew; hours late; month; 400 days off; row is altered; tail of a chain is cut; is
        erased; retention; replay; another's; owner is frozen; comes and goes
    """
    named = [" ".join(fault.split()) for fault in faults.split(";")]
    assert [] == [fault for fault in named if fault not in told]
