"""When a decision counts, by both readers and on both brokers: a wrong clock and a long spool change no total."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from enforcer.types import Basis, Plan, Standing, Terms, Verdict
from stream.contract.codec import encode_block
from tests.integration.aggregator.counting import Counting, counting
from tests.integration.aggregator.recording import Recording, recording
from tests.services import KafkaService

_DAY_US = 86_400_000_000
#: What no table can hold.
_YEAR_2150_US = 5_680_000_000_000_000
#: Decisions of copies whose clock was more than five seconds wrong, and how wrong it was at most.
_SKEWED = (
    "SELECT copy_id, sum(decisions), argMax(shift_us, abs(shift_us)) FROM blocks FINAL WHERE abs(shift_us) > 5000000 "
    "GROUP BY copy_id ORDER BY copy_id"
)
_RAW = "SELECT caller, toString(toStartOfMinute(at)) AS minute, count() FROM decisions FINAL GROUP BY ALL ORDER BY ALL"
_LIVE = (
    "SELECT caller, toString(minute), toUInt64(sum(offered)) FROM live FINAL WHERE kind = 'usage' "
    "GROUP BY ALL ORDER BY ALL"
)


@pytest.fixture
def both(kafka_broker: KafkaService, database_dsn: str, tmp_path: Path) -> Iterator[tuple[Recording, Counting]]:
    """A recorder and a worker over one log and one database."""
    with ExitStack() as ends:
        log = ends.enter_context(recording(kafka_broker.bootstrap, database_dsn, tmp_path))
        yield log, ends.enter_context(counting(kafka_broker.bootstrap, database_dsn, tmp_path))


def _block(copy_id: str, at_us: int, *, owner_offset_us: int | None = None) -> tuple[str, bytes]:
    """Ten decisions of the copy's own caller, at these times by its clock."""
    basis = Basis(Standing(copy_id, Terms("rate", Plan("pro", 10.0, 20), 3)), "/cards/{id}", 1, 4)
    return copy_id, encode_block(
        [Verdict(seq, seq * 1_000, basis, True, 0, 1, 5, 0) for seq in range(10)],
        copy_id=copy_id,
        epoch=1,
        first_seq=0,
        sealed_at_us=at_us + 1_000,
        clock_offset_ns=at_us * 1_000,
        owner_offset_us=owner_offset_us,
    )


def test_decisions_count_when_they_were_made_whatever_their_copys_clock_says(
    both: tuple[Recording, Counting], kafka_broker: KafkaService
) -> None:
    """R18 (a clock 400 days ahead: counted today, and told), R7 (spooled for 8 days: counted once, 8 days ago)."""
    log, live = both
    # In the middle of the last minute, so that milliseconds do not decide about it.
    now_us = time.time_ns() // 60_000_000_000 * 60_000_000 - 30_000_000
    ahead_us = now_us + 400 * _DAY_US
    messages = [
        _block("ahead", ahead_us, owner_offset_us=-400 * _DAY_US),
        _block("spooled", now_us - 8 * _DAY_US),
        _block("spooled", now_us - 8 * _DAY_US),
        _block("right", now_us, owner_offset_us=4_000),
    ]
    # The embedded broker keeps the producer's time, which is no second opinion (docs/reference/block-format.md).
    if kafka_broker.kind == "apache":
        messages += [_block("alone", ahead_us), _block("century", _YEAR_2150_US)]
    copies = {key for key, _ in messages}
    if kafka_broker.kind == "embedded":
        messages.append(_block("century", _YEAR_2150_US))
    log.send(messages)
    log.start()
    live.worker()
    log.wait_for_all()
    live.wait_for(10 * len(copies))

    counted = log.rows(_RAW)
    assert counted == log.rows(_LIVE), "both readers count in the same minutes"
    assert dict.fromkeys(copies, 10) == {caller: count for caller, _, count in counted}
    minutes = {str(caller): str(minute) for caller, minute, _ in counted}
    assert _minute(now_us - 8 * _DAY_US) == minutes["spooled"]
    assert _minute(now_us) == minutes["ahead"] == minutes["right"]
    skewed = {str(copy): (count, int(str(shift))) for copy, count, shift in log.rows(_SKEWED)}
    assert (10, -400 * _DAY_US) == skewed.pop("ahead")
    if kafka_broker.kind == "apache":
        decisions, shift_us = skewed.pop("alone")
        assert 10 == decisions
        assert abs(shift_us + 400 * _DAY_US) < 600_000_000
        assert 10 == skewed.pop("century")[0]
    assert {} == skewed
    assert (kafka_broker.kind == "embedded") == log.number("SELECT count() FROM dead_letters FINAL"), "kept, as it was"
    days = {_day(now_us), _day(now_us - 8 * _DAY_US), _day(now_us + 600_000_000)}
    parts = log.rows(
        "SELECT DISTINCT partition FROM system.parts "
        "WHERE database = currentDatabase() AND table = 'decisions' AND active"
    )
    assert {str(partition) for (partition,) in parts} <= days, "no partition of another year"
    assert ahead_us // 1_000_000 * 1_000_000 == log.number(
        "SELECT intDiv(toUnixTimestamp64Micro(sealed_at) - shift_us, 1000000) * 1000000 FROM blocks FINAL "
        "WHERE copy_id = 'ahead'"
    ), "the copy's own time can be had back"


def _minute(unix_us: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:00", time.gmtime(unix_us // 1_000_000))


def _day(unix_us: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(unix_us // 1_000_000))
