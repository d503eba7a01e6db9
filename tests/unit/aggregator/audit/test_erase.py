"""The words of ``tallygate audit erase``: what is written down stays for good."""

from __future__ import annotations

import argparse
from typing import cast

import pytest

from aggregator.audit import erase
from aggregator.store import Store
from aggregator.words import Answer

NAME = "acct-0815"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--by is ''"),
        (("--by", "me"), "--reason is ''"),
        (("--by", "me", "--reason", "two\nlines"), "--reason is 'two\\nlines'"),
        (("--by", "me", "--reason", f"{NAME.upper()} asked"), "--reason names the caller"),
    ],
)
def test_erasing_asks_who_and_why_without_the_name(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody is erased by nobody, and the reason must not keep the name that goes."""
    parser = argparse.ArgumentParser()
    erase.add_arguments(parser)
    no_store = cast(Store, None)
    assert 2 == erase.run(parser.parse_args(["--caller", NAME, "--yes", *words]), no_store)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("caller", "reason", "is_refused"),
    [
        ("a", "request", False),
        ("1", "ticket 12", False),
        ("1", "ticket 1, by letter", True),
        ("Bo", "asked by bo", True),
        ("Bo", "asked by the board", False),
        ("anna", "for hannah", True),
        ("c++", "of c++ himself", True),
    ],
)
def test_short_name_is_only_refused_where_it_is_a_word(
    caller: str, reason: str, is_refused: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller called "a" has the same right to be erased."""
    parser = argparse.ArgumentParser()
    erase.add_arguments(parser)
    erased: list[str] = []
    monkeypatch.setattr(erase, "erase", lambda _store, name, **_words: erased.append(name))
    monkeypatch.setattr(erase, "_answer", lambda *_words: Answer(True, "done", [], {}))
    words = ["--caller", caller, "--yes", "--by", "privacy desk", "--reason", reason]
    assert 2 * is_refused == erase.run(parser.parse_args(words), cast(Store, None))
    assert [caller] * (not is_refused) == erased
    assert is_refused == ("--reason names the caller" in capsys.readouterr().err)
