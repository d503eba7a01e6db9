"""What is asked beside a page: bounded, given up with it, and its faults are the page's."""

from __future__ import annotations

import threading

import pytest

from dashboard.beside import Beside
from dashboard.store import RecordUnavailable
from tests.unit.dashboard.scripted import HANG_S, ScriptedRecord


def test_where_no_thread_is_free_the_page_reads_by_itself() -> None:
    """A page that waited for a thread that waits for nothing would be slower than one that asks one after the other."""
    beside, held, begun = Beside(1), threading.Event(), threading.Event()

    def first() -> str:
        begun.set()
        assert held.wait(HANG_S)
        return threading.current_thread().name

    busy = beside.begin(first)
    assert begun.wait(HANG_S)
    names = beside.begin(lambda: threading.current_thread().name)
    assert threading.current_thread().name == names()
    held.set()
    assert "dashboard-beside" == busy()


def test_a_thread_is_free_again_whatever_came_of_what_it_read() -> None:
    """One fault for each thread would leave every page alone for ever."""
    beside = Beside(1)
    for _ in range(3):
        freed = threading.Event()

        def fail(freed: threading.Event = freed) -> None:
            freed.set()
            raise ValueError("asked for")

        wait = beside.begin(fail)
        with pytest.raises(ValueError, match="asked for"):
            wait()
        assert freed.is_set()


def test_what_is_asked_beside_a_page_is_given_up_with_it() -> None:
    """The database would go on with half of a page that nobody waits for."""
    record, gone = ScriptedRecord(), threading.Event()

    def page() -> None:
        gone.set()
        with pytest.raises(RecordUnavailable, match="given up"):
            record.beside(lambda: _asked(record))()

    record.unless(gone.is_set, page)
    assert 0 == record.asks
    assert [] == record.beside(lambda: _asked(record))()


def _asked(record: ScriptedRecord) -> list[object]:
    with record.of_fleet() as ask:
        return list(ask("fleet_stand", from_s=0, to_s=0, topic=""))
