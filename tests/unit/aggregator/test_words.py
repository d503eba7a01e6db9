"""The words that the actions of ``tallygate audit`` share."""

from __future__ import annotations

import argparse
import io
import json

import pytest

from aggregator import words

NOON_US = 1_796_040_000_000_000


def options_of(*arguments: str, caller_required: bool = False) -> argparse.Namespace:
    """What an action that takes all shared words reads."""
    parser = argparse.ArgumentParser()
    words.add_span(parser)
    words.add_caller(parser, required=caller_required)
    words.add_json(parser)
    return parser.parse_args(arguments)


@pytest.mark.parametrize(
    ("text", "at_us"),
    [
        ("2026-11-30T12:00:00Z", NOON_US),
        ("2026-11-30t12:00:00z", NOON_US),
        ("2026-11-30 12:00:00Z", NOON_US),
        ("2026-11-30T13:00:00+01:00", NOON_US),
        ("2026-11-30T12:00:00.25Z", NOON_US + 250_000),
        ("2026-11-30T12:00:00.000001Z", NOON_US + 1),
        ("2026-11-30T12:00", NOON_US),
        ("2026-11-30", NOON_US - 43_200_000_000),
        ("1970-01-01", 0),
    ],
)
def test_moment_is_read_as_people_write_it(text: str, at_us: int) -> None:
    """A dispute is about a span; one that is misread answers another question."""
    assert at_us == words.moment_us(text)


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "2026-13-01", "2026-11-31", "20261130", "2026-11-30T25:00", "1969-12-31", "2026-W49-1", "9999"],
)
def test_moment_that_is_none_is_refused_with_what_is_allowed(text: str) -> None:
    """Whoever mistypes a date must not get the answer for another one."""
    with pytest.raises(argparse.ArgumentTypeError, match=f"{text!r} is .*; allowed: "):
        words.moment_us(text)


@pytest.mark.parametrize("name", ["", "a\nb", "\x00", "x" * 70_000, r"DOMAIN\new", '"', "agrees: nothing\x1b[0m"])
def test_every_caller_that_the_record_takes_can_be_named(name: str) -> None:
    """A name that nobody can type must still be exportable, and erasable; one with a backslash must not be another."""
    for words_of_it in (("--caller", name), ("--caller-json", json.dumps(name))):
        assert name == options_of(*words_of_it, caller_required=True).caller
        if name:
            assert name == options_of(*words_of_it).caller


def test_moment_is_written_as_it_is_read() -> None:
    """What an answer names must be good for the next question."""
    assert "2026-11-30T12:00:00.250000Z" == words.moment(NOON_US + 250_000)
    assert NOON_US + 250_000 == words.moment_us(words.moment(NOON_US + 250_000))
    assert words.LATEST_US == words.moment_us(words.moment(words.LATEST_US))


def test_span_without_ends_holds_everything_whenever_it_is_asked() -> None:
    """An end that moves with the clock would make two answers of one question."""
    span = words.span_of(options_of())
    assert (words.EARLIEST_US, words.LATEST_US) == (span.from_us, span.to_us)
    assert "all that is recorded" == span.words


def test_span_names_the_ends_that_were_given() -> None:
    """An answer says which span it is about."""
    span = words.span_of(options_of("--from", "2026-11-30", "--to", "2026-11-30T12:00"))
    assert "from 2026-11-30T00:00:00.000000Z to 2026-11-30T12:00:00.000000Z" == span.words
    assert {"from_us": NOON_US - 43_200_000_000, "to_us": NOON_US} == span.parameters


@pytest.mark.parametrize(
    "arguments",
    [
        ("--from", "x"),
        ("--caller", ""),
        ("--caller", "a\udcff"),
        ("--caller-json", "bare"),
        ("--caller-json", "7"),
        ("--caller-json", r'"\ud800"'),
        ("--caller-json", '""'),
    ],
)
def test_word_that_is_not_acceptable_is_a_wrong_call(
    arguments: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong call must not look like a record that does not agree."""
    with pytest.raises(SystemExit) as ended:
        options_of(*arguments)
    assert 2 == ended.value.code
    assert "allowed: " in capsys.readouterr().err


def test_span_that_holds_no_time_is_a_wrong_call(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing would be found in it, which looks as if all were well."""
    with pytest.raises(SystemExit) as ended:
        words.span_of(options_of("--from", "2026-11-30", "--to", "2026-11-30"))
    assert 2 == ended.value.code
    assert "--from 2026-11-30T00:00:00.000000Z is not before --to" in capsys.readouterr().err


def test_answer_says_its_verdict_first_then_one_finding_a_line() -> None:
    """Who reads only the first line knows; who reads on finds each place."""
    finding = words.Finding("block 7 of copy a", {"copy_id": "a"})
    assert "agrees: 12 blocks\n" == words.Answer(True, "12 blocks").text()
    assert "does not agree: 1 of 12\nblock 7 of copy a\n" == words.Answer(False, "1 of 12", [finding]).text()


def test_answer_for_programs_is_one_line_in_one_order() -> None:
    """Two runs on one record must give the same bytes, whatever order the facts were gathered in."""
    finding = words.Finding("…", {"z": 1, "a": "ü"})
    answer = words.Answer(False, "1 of 12", [finding], {"b": 2, "a": None})
    assert '{"a":null,"agrees":false,"b":2,"findings":[{"a":"ü","z":1}],"summary":"1 of 12"}\n' == answer.json()


@pytest.mark.parametrize(("agrees", "code"), [(True, 0), (False, 1), (None, 3)])
def test_answer_is_told_as_asked_with_its_exit_code(agrees: bool | None, code: int) -> None:
    """Scripts go by the exit code, whichever form they print."""
    answer, text, machine = words.Answer(agrees, "s"), io.StringIO(), io.StringIO()
    assert (code, code) == (answer.tell(options_of(), to=text), answer.tell(options_of("--json"), to=machine))
    assert answer.text() == text.getvalue()
    assert agrees is json.loads(machine.getvalue())["agrees"]


def test_count_comes_with_the_word_that_fits() -> None:
    """An answer is read by people."""
    assert ["1 grant", "1,200 grants", "0 lives"] == [
        words.plural(1, "grant"), words.plural(1_200, "grant"), words.plural(0, "life", "lives")
    ]  # fmt: skip


def test_names_cannot_write_lines_of_an_answer() -> None:
    """A caller names itself: one called "x, line break, agrees" would give a verdict of its own."""
    hostile = "x\nagrees: all is well\r\x1b[2J\x9b\u2028\u202e\0 Zoë \\n"
    finding = words.Finding(f"caller {hostile}: 1 missing", {"caller": hostile})
    answer = words.Answer(False, f"1 of {hostile}", [finding])
    shown = r"x\nagrees: all is well\r\x1b[2J\x9b\u2028\u202e\x00 Zoë \n"
    assert f"does not agree: 1 of {shown}\ncaller {shown}: 1 missing\n" == answer.text()
    assert [hostile] == [one["caller"] for one in json.loads(answer.json())["findings"]], "programs get it as it is"
