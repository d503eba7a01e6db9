"""What the lags of the readers mean, and what the command takes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from aggregator.audit.command import main
from aggregator.audit.lag.judging import CopyHeard, Night, ReaderLag, Unread, judged
from aggregator.audit.lag.reading import CLAIM_LAPSES_S
from aggregator.replay.claim import LAPSES_S

_US = 1_000_000
_NOW_US = 1_796_040_000 * _US
_WELL = tuple(ReaderLag(name) for name in ("recorder", "worker", "second stage", "settler"))
_QUIET = Night(_NOW_US, _WELL, (), (0, 0), (), _NOW_US - 2 * _US, log_asked=False)


def _late(name: str, behind_s: int, messages: int = 5) -> ReaderLag:
    since_us = _NOW_US - behind_s * _US
    return ReaderLag(name, since_us, [Unread("tallygate.decisions", 1, messages, since_us)], "last stored at noon")


def test_nobody_is_behind_where_all_have_read_all() -> None:
    """The answer of every good night."""
    answer = judged(_QUIET, within_s=60)

    assert answer.agrees
    assert answer.text().splitlines() == [
        "agrees: no reader is more than 60 s behind, by the record alone",
        "recorder: 0 s behind, 0 messages",
        "worker: 0 s behind, 0 messages",
        "second stage: 0 s behind, 0 messages",
        "settler: 0 s behind, 0 messages",
        "copies: 0 heard of in the last 10 minutes, 0 late",
        "dead letters: 0 open",
        "replay: none is running",
    ]


def test_reader_behind_by_more_than_is_allowed_is_named_first_hand_first() -> None:
    """Who is woken begins with the first that stands: those behind it wait for it."""
    readers = (_WELL[0], _late("worker", 61), _WELL[2], replace(_late("settler", 400), unread=()))
    answer = judged(replace(_QUIET, readers=readers), within_s=60)

    assert answer.agrees is False
    first, *lines = answer.text().splitlines()
    assert first == (
        "does not agree: behind, by the record alone: the worker 61 s, the settler 400 s; begin with the worker: start "
        "it, or read its log (docs/operations/lag-gaps-dead-letters.md#lag)"
    )
    assert "worker: 61 s behind, 5 messages (tallygate.decisions[1] 5 messages); last stored at noon" in lines
    told = json.loads(answer.json())
    assert told["behind"] == ["worker", "settler"]
    (worker,) = (one for one in told["findings"] if one.get("reader") == "worker")
    assert worker["partitions"] == [
        {"topic": "tallygate.decisions", "partition": 1, "messages": 5, "since_us": _NOW_US - 61 * _US}
    ]
    assert (worker["behind"], worker["behind_s"], worker["messages"]) == (True, 61.0, 5)


def test_reader_behind_by_as_much_as_is_allowed_is_not_late() -> None:
    """The bound is the caller's: whoever asks for a minute gets a minute."""
    night = replace(_QUIET, readers=(_late("recorder", 60), *_WELL[1:]))

    assert judged(night, within_s=60).agrees
    assert judged(night, within_s=59).agrees is False


def test_partitions_beyond_those_that_are_named_are_counted() -> None:
    """A topic may have a thousand, and the line is read at night."""
    unread = [Unread("t", number, 1, _NOW_US - 90 * _US) for number in range(11)]
    night = replace(_QUIET, readers=(ReaderLag("recorder", unread[0].since_us, unread), *_WELL[1:]))

    line = judged(night, within_s=60).findings[0].line

    assert "recorder: 90 s behind, 11 messages (t[0] 1 message, " in line
    assert line.endswith("t[7] 1 message, 3 more)")


def test_reader_that_never_ran_is_named_and_is_behind_nothing() -> None:
    """The second stage may be left out; a nightly job must not fail over it."""
    night = replace(_QUIET, readers=(*_WELL[:2], replace(_late("second stage", 999), in_use=False), _WELL[3]))
    answer = judged(night, within_s=60)

    assert answer.agrees
    assert "second stage: never ran on this database; last stored at noon" in answer.text()


@pytest.mark.parametrize(
    ("night", "agrees", "words"),
    [
        (replace(_QUIET, newest_us=None), None, "nothing is on record"),
        (replace(_QUIET, newest_us=_NOW_US - 61 * _US), None, "nothing was recorded for 61 s: no copy runs, or Kafka"),
        (replace(_QUIET, newest_us=_NOW_US - 60 * _US), True, "no reader is more than 60 s behind"),
        (replace(_QUIET, newest_us=_NOW_US - 61 * _US, log_asked=True), True, "nothing came to the log for 61 s"),
        (replace(_QUIET, log_asked=True, log_fault="Kafka is away"), None, "the log did not answer"),
        (replace(_QUIET, log_asked=True, log_fault="Kafka is away", readers=(_late("recorder", 99),)), False, "behind"),
    ],
    ids=["empty", "silent", "quiet", "silent by the log too", "no log", "no log and late"],
)
def test_silence_is_no_proof_that_all_is_well(night: Night, agrees: bool | None, words: str) -> None:
    """If all of them stand, none is behind another: only the log, or a copy's word, tells."""
    answer = judged(night, within_s=60)

    assert answer.agrees is agrees
    assert words in answer.summary


def test_what_else_an_operator_looks_for_is_said_with_units() -> None:
    """Late copies, wrong clocks, letters and a replay explain half of all lags."""
    copies = [
        CopyHeard("gw-1", _NOW_US - 3 * _US, 0),
        CopyHeard("gw-2", _NOW_US - 21 * _US, 0),
        CopyHeard("gw-3", _NOW_US, -86_400 * _US),
    ]
    night = replace(_QUIET, copies=copies, letters=(2, 1_796_036_400 * _US), replays=[("shadow", "process 7", "10:00")])
    text = judged(night, within_s=60).text()

    assert (
        "copies: 3 heard of in the last 10 minutes, 1 late (gw-2 19 s); 1 with a wrong clock, corrected (gw-3 by"
        in text
    )
    assert "gw-3 by -86,400 s)" in text
    assert "dead letters: 2 open, the oldest seen at 2026-11-30T11:00:00.000000Z: tallygate dead-letters list" in text
    assert "replay: into shadow by process 7 since 10:00 UTC" in text


def test_copies_are_not_late_where_the_recorder_stands() -> None:
    """Whoever is woken would look at the copies, which do as they should."""
    night = replace(_QUIET, newest_us=_NOW_US - 90 * _US, copies=[CopyHeard("gw-1", _NOW_US - 95 * _US, 0)])

    assert "copies: 1 heard of in the last 10 minutes, 0 late\n" in judged(night, within_s=60).text()


def test_claim_of_a_replay_lapses_here_as_it_does_there() -> None:
    """A replay that was killed is not told to be running."""
    assert CLAIM_LAPSES_S == LAPSES_S


@pytest.mark.parametrize("text", ["0", "86401", "-1", "1.5", "a minute", ""])
def test_wrong_bound_is_refused_by_name(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A bound that is misread would keep an alarm silent."""
    with pytest.raises(SystemExit) as ended:
        main(["lag", f"--within={text}"])

    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert f"argument --within: {text!r}; allowed: a whole number of seconds from 1 to 86,400" in said
