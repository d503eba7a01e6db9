"""The compose check reads Docker and pages rightly: a check that misreads would agree with anything."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.composed.pages import Shown, sentence_of
from tests.composed.stack import parse_inspect


def _described(**state: Any) -> str:
    ended = {"Pid": 0, "Running": False, "Restarting": False, "ExitCode": 137}
    return json.dumps([{"Id": "1", "Name": "/tallygate-worker-1", "RestartCount": 2, "State": ended | state}])


def test_container_that_waits_for_its_restart_does_not_run() -> None:
    """Docker calls it running between two tries; a stack that only ever restarts would pass as back."""
    (waiting,) = parse_inspect(_described(Running=True, Restarting=True))
    (back,) = parse_inspect(_described(Running=True, Pid=77))
    assert (waiting.running, back.running, back.pid, back.restarts) == (False, True, 77, 2)
    assert "tallygate-worker-1" == back.name


def test_container_keeps_the_code_that_it_ended_with() -> None:
    """137 is a container that did not end within its grace period."""
    (ended,) = parse_inspect(_described())
    assert (ended.running, ended.exit_code) == (False, 137)


def test_sentence_is_read_without_its_markup() -> None:
    """It is compared as a person reads it."""
    page = '<main><p id="sentence" class="s">You sent <b>1,080</b> requests;\n 9 (0.8&nbsp;%) were refused.</p><p>x</p>'
    assert "You sent 1,080 requests; 9 (0.8 %) were refused." == sentence_of(page)
    assert "" == sentence_of("<p>the record cannot be read</p>")


@pytest.mark.parametrize(
    ("shown", "agrees"),
    [
        (Shown(1_080, 1_071, 9, "You sent 1,080 requests in the last hour; 9 (0.8 %) were refused."), True),
        (Shown(1_080, 1_071, 9, "Your totals are still arriving: so far at least 1,080 requests; 9 (…"), False),
        (Shown(1_080, 1_071, 9, "You sent 1,080 requests in the last hour; none was refused."), False),
        (Shown(1_079, 1_071, 8, "You sent 1,080 requests in the last hour; 9 (0.8 %) were refused."), False),
    ],
)
def test_pages_agree_only_if_numbers_and_words_do(shown: Shown, *, agrees: bool) -> None:
    """Both are read by people: one of them being right is not enough."""
    assert agrees is shown.agrees(admitted=1_071, refused=9)
