"""What a flush holds: decoded messages, dead letters, and how far a commit may go."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET, UnsetType

from aggregator.core.record import batches as record_batches
from aggregator.core.record.batches import Gathered
from aggregator.core.record.pending import Pending
from enforcer.identity import CopyIdentity
from enforcer.messages import SettleCause, Settlement
from enforcer.sink import CostChanged, GrantIssued, GrantSettled
from enforcer.types import Grant
from stream.contract.control import CopyStarted, DecisionsLost, encode_control
from stream.contract.facts import encode_facts
from stream.contract.topics import CONTROL, DECISIONS, GRANTS
from tests.logfill import Fill
from tests.recordblocks import MIDNIGHT_US

COPY = CopyIdentity("gw-1", 7)
DAY_US = 86_400_000_000


def _rows(pending: Pending) -> dict[str, list[dict[str, Any]]]:
    rows: dict[str, list[dict[str, Any]]] = {}
    for batch in pending.batches(Gathered(pending.blocks), []):
        rows.setdefault(batch.table, []).extend(batch.rows.to_pylist())
    return rows


def _take(pending: Pending, topic: str, offset: int, value: bytes) -> str | None:
    return pending.take(topic, 2, offset, key=b"k", value=value, seen_at_us=MIDNIGHT_US)


def test_pending_reads_each_topic_into_its_tables() -> None:
    """One message of each kind ends in the rows that it states."""
    pending = Pending()
    grant = Grant(MIDNIGHT_US, 50, 4, MIDNIGHT_US, MIDNIGHT_US + 1_000_000)
    settled = Settlement(MIDNIGHT_US - 5, 20, True, SettleCause.CREDITED)
    facts = encode_facts(
        COPY,
        [GrantIssued("a", "sustained", 3, grant, 12.5)],
        [GrantSettled("a", "sustained", "gw-9/12", settled, MIDNIGHT_US + 9)],
    )
    block = next(iter(Fill(decisions=10, block=10, callers=2).messages()))[1]
    started = CopyStarted(copy_id="gw-1", epoch=7, at_us=MIDNIGHT_US)

    assert [None, None, None] == [
        _take(pending, DECISIONS.name, 5, block),
        _take(pending, GRANTS.name, 6, facts),
        _take(pending, CONTROL.name, 7, encode_control(started)),
    ]

    rows = _rows(pending)
    assert 10 == pending.decisions == len(rows["decisions"])
    assert {("tallygate.decisions", 2): 6, ("tallygate.grants", 2): 7, ("tallygate.control", 2): 8} == (
        pending.next_offsets
    )
    (issued,) = rows["grants"]
    assert ("a", "sustained", MIDNIGHT_US, "gw-1", 7, 50, 4, 12.5, 3, 2, 6) == tuple(
        issued[name]
        for name in (
            "caller",
            "limit",
            "grant_id",
            "copy_id",
            "epoch",
            "size_tokens",
            "k",
            "tokens_left",
            "policy_version",
            "log_partition",
            "log_offset",
        )
    )
    (stated,) = rows["settlements"]
    assert ("gw-9", 12, 20, True, 4) == tuple(
        stated[name] for name in ("copy_id", "epoch", "spent_tokens", "final", "cause")
    )
    (event,) = rows["control"]
    assert ("copy_started", "gw-1", 7, encode_control(started).decode()) == tuple(
        event[name] for name in ("kind", "copy_id", "epoch", "body")
    )


@pytest.mark.parametrize(
    ("offset_us", "appended_us", "shift_us"),
    [
        (-400 * DAY_US, MIDNIGHT_US, -400 * DAY_US),
        (9 * DAY_US, MIDNIGHT_US, 9 * DAY_US),
        (UNSET, MIDNIGHT_US - 400 * DAY_US, -400 * DAY_US),
        (UNSET, MIDNIGHT_US + 8 * DAY_US, 0),
        (UNSET, None, 0),
    ],
)
def test_pending_corrects_the_time_of_a_control_event_as_that_of_a_block(
    offset_us: int | UnsetType, appended_us: int | None, shift_us: int
) -> None:
    """R18: the anchors of a copy 400 days ahead must stand beside its blocks, or a cut tail is not missed."""
    pending = Pending()
    said = encode_control(CopyStarted(copy_id="gw-1", epoch=7, at_us=MIDNIGHT_US, owner_offset_us=offset_us))
    reason = pending.take(CONTROL.name, 2, 7, key=b"k", value=said, seen_at_us=MIDNIGHT_US, appended_us=appended_us)
    assert reason is None
    (event,) = _rows(pending)["control"]
    assert MIDNIGHT_US + shift_us == event["at"].timestamp() * 1e6
    assert said.decode() == event["body"], "what the copy said itself is kept"


@pytest.mark.parametrize(
    ("lent_us", "appended_us", "shift_us"),
    [
        (MIDNIGHT_US - 400 * DAY_US - 5, MIDNIGHT_US - 400 * DAY_US, -400 * DAY_US),
        (MIDNIGHT_US - 400 * DAY_US, MIDNIGHT_US - 400 * DAY_US - 3, -400 * DAY_US),
        (MIDNIGHT_US - 1, MIDNIGHT_US - DAY_US, 0),
        (MIDNIGHT_US - 1, MIDNIGHT_US + 8 * DAY_US, 0),
        (MIDNIGHT_US - 1, None, 0),
    ],
)
def test_pending_brings_a_settlement_back_to_what_the_owner_or_the_broker_vouch_for(
    lent_us: int, appended_us: int | None, shift_us: int
) -> None:
    """R18: beside grants and decisions of the owner's time, one of next year closes nothing that anybody looks at."""
    pending = Pending()
    settled = GrantSettled("a", "rate", "gw-1/7", Settlement(lent_us, 1, True, SettleCause.ASK), MIDNIGHT_US)
    charged = CostChanged("a", "/x", 1, 3, 0, MIDNIGHT_US)
    said = encode_facts(COPY, [], [settled], [charged])
    reason = pending.take(GRANTS.name, 2, 7, key=b"k", value=said, seen_at_us=MIDNIGHT_US, appended_us=appended_us)
    assert reason is None
    rows = _rows(pending)
    assert [MIDNIGHT_US + shift_us] == [round(row["at"].timestamp() * 1e6) for row in rows["settlements"]]
    ahead = appended_us is not None and appended_us < MIDNIGHT_US
    assert [appended_us if ahead else MIDNIGHT_US] == [
        round(row["at"].timestamp() * 1e6) for row in rows["cost_changes"]
    ]


def test_pending_makes_a_dead_letter_of_a_control_event_that_is_shifted_out_of_time() -> None:
    """The table could not hold it, now or ever."""
    said = encode_control(CopyStarted(copy_id="gw-1", epoch=7, at_us=MIDNIGHT_US, owner_offset_us=-MIDNIGHT_US - 1))
    assert "at_us is -1; allowed: a time from 1970 to 2099" == _take(Pending(), CONTROL.name, 1, said)


@pytest.mark.parametrize("topic", [DECISIONS.name, GRANTS.name, CONTROL.name])
@pytest.mark.parametrize("value", [b"", b"nonsense", b"\xff" * 500, b"{}"])
def test_pending_makes_a_dead_letter_of_what_it_cannot_read(topic: str, value: bytes) -> None:
    """One broken message must not stop the others, and must not be lost."""
    pending = Pending()
    reason = _take(pending, topic, 41, value)
    assert reason
    assert {(topic, 2): 42} == pending.next_offsets
    (letter,) = _rows(pending)["dead_letters"]
    assert (topic, 2, 41, reason, b"k", value) == tuple(
        letter[name] for name in ("topic", "log_partition", "log_offset", "reason", "key", "payload")
    )


def test_pending_makes_a_dead_letter_of_facts_that_no_table_holds() -> None:
    """Well-formed, and yet the database would refuse it for ever."""
    far = Grant(1, 1, 1, 5_000_000_000_000_000, 5_000_000_000_000_001)
    for grants, settlements, said in (
        ([GrantIssued("a", "l", 1, far, 0.0)], [], "issued_at_us"),
        ([], [GrantSettled("a", "l", "no-epoch", Settlement(1, 1, True, SettleCause.ASK), 1)], "member"),
        ([], [GrantSettled("a", "l", "c/99999999999999999999", Settlement(1, 1, True, SettleCause.ASK), 1)], "member"),
        ([], [GrantSettled("a", "l", "c/1", Settlement(2**62, 1, True, SettleCause.ASK), 1)], "grant_id"),
    ):
        reason = _take(Pending(), GRANTS.name, 1, encode_facts(COPY, grants, settlements))
        assert said in (reason or "")


def test_pending_cuts_facts_by_month() -> None:
    """Each INSERT is one part, and so atomic."""
    pending = Pending()
    new_year_us = MIDNIGHT_US - 86_400_000_000
    settled = [
        GrantSettled("a", "l", "c/1", Settlement(unix_us, 1, True, SettleCause.ASK), MIDNIGHT_US)
        for unix_us in (new_year_us, new_year_us - 1, new_year_us + 1)
    ]
    _take(pending, GRANTS.name, 1, encode_facts(COPY, [], settled))
    grant_ids = [
        batch.rows.column("grant_id").to_pylist()
        for batch in pending.batches(Gathered([]), [])
        if batch.table == "settlements"
    ]
    assert [[new_year_us - 1], [new_year_us, new_year_us + 1]] == grant_ids


def test_pending_writes_blocks_after_their_decisions() -> None:
    """A row of `blocks` says that the decisions are there; ended between the two, it must not say so."""
    pending = Pending()
    block = next(iter(Fill(decisions=10, block=10, callers=2).messages()))[1]
    _take(pending, DECISIONS.name, 5, block)
    lost = DecisionsLost(copy_id="gw-1", epoch=7, at_us=1, first_seq=5, count=9, cause="full")
    _take(pending, CONTROL.name, 1, encode_control(lost))
    tables = [batch.table for batch in pending.batches(Gathered(pending.blocks), pending.blocks)]
    assert ["decisions", "conflicts", "control", "blocks", "recorded"] == tables


def test_pending_refuses_a_topic_that_it_was_not_made_for() -> None:
    """A reader that subscribes to too much must not drop messages silently."""
    with pytest.raises(ValueError, match="topic is 'other'"):
        _take(Pending(), "other", 1, b"")


def test_pending_cuts_dead_letters_into_parts_that_can_be_inserted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood of them that no INSERT takes would stop the record of everybody, and again after each restart."""
    monkeypatch.setattr(record_batches, "MAX_ROWS", 10)
    pending = Pending()
    for offset in range(25):
        _take(pending, DECISIONS.name, offset, b"junk")
    *batches, _journal = pending.batches(Gathered([]), [])
    assert [("dead_letters", 10), ("dead_letters", 10), ("dead_letters", 5)] == [
        (batch.table, batch.rows.num_rows) for batch in batches
    ]
    assert list(range(25)) == [offset for batch in batches for offset in batch.rows.column("log_offset").to_pylist()]
