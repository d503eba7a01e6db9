"""The words of ``tallygate dead-letters``: who re-drives a letter is a name, whatever process asks."""

from __future__ import annotations

import pytest

from aggregator.dead_letters import command


@pytest.mark.parametrize("name", ["", "  "])
def test_letter_is_redriven_by_somebody(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a name the letter would be open in one list, and re-driven in the other."""
    with pytest.raises(SystemExit) as ended:
        command.main(["redrive", "tallygate.decisions[0]@4", "--by", name])
    assert 2 == ended.value.code
    assert f"{name!r}; allowed: a name" in capsys.readouterr().err


def test_process_without_a_user_has_the_number_of_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A container's uid often stands in no passwd file, and listing letters needs no name at all."""

    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 4711")

    monkeypatch.setattr("getpass.getuser", nobody)
    monkeypatch.setattr("os.getuid", lambda: 4711)
    with pytest.raises(SystemExit) as ended:
        command.main(["redrive", "--help"])
    assert 0 == ended.value.code
    assert "NAME" in capsys.readouterr().out
    assert "uid 4711" == command.parser().parse_args(["redrive", "tallygate.decisions[0]@4"]).by
