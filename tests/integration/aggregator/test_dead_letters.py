"""``tallygate dead-letters`` on a real log and a real record: what was broken is seen, repaired, and counted once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from aggregator.dead_letters.letters import LetterPlace, Mark, StoredLetter, mark
from aggregator.migrate import migrate
from aggregator.store_clickhouse import ClickHouseStore
from enforcer.types import Basis, Plan, Standing, Terms, Verdict
from stream.contract.codec import encode_block
from tallygate.cli import main
from tests.integration.aggregator.recording import Recording, recording
from tests.logfill import START_US
from tests.services import KafkaService

_BASIS = Basis(Standing("acct-1", Terms("rate", Plan("pro", 10.0, 20), 3)), "/cards/{id}", START_US, 4)


@pytest.fixture
def log(
    embedded_broker: KafkaService, database_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Recording]:
    """An empty log and an empty record, which the command finds."""
    monkeypatch.setenv("TALLYGATE_KAFKA", embedded_broker.bootstrap)
    monkeypatch.setenv("TALLYGATE_CLICKHOUSE", database_dsn)
    with recording(embedded_broker.bootstrap, database_dsn, tmp_path) as made:
        yield made


def _block(seq: int) -> bytes:
    return encode_block(
        [Verdict(seq, 0, _BASIS, True, 0, 10, 5, 0)],
        copy_id="gw-1",
        epoch=1,
        first_seq=seq,
        sealed_at_us=START_US + 1_000,
        clock_offset_ns=START_US * 1_000,
    )


def test_dead_letter_is_listed_shown_repaired_and_counted_once(
    log: Recording, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """R20: ten messages, one broken: nine counted and one letter with offset, bytes and reason; re-driven, ten."""

    def said(*words: str, code: int = 0) -> str:
        assert code == main(["dead-letters", *words])
        told = capsys.readouterr()
        return told.err if code else told.out

    blocks = [_block(seq) for seq in range(10)]
    broken = b"\xff" + blocks[4][1:]
    log.send([("gw-1", broken if seq == 4 else block) for seq, block in enumerate(blocks)])
    log.start()
    log.wait_for_all()
    assert 9 == log.decisions()

    line, summary = said("list").splitlines()
    place = line.split()[0]
    assert place.endswith("@4")
    assert f"{len(broken)} bytes  open  " in line
    assert "magic" in line
    assert "1 open, 1 shown" == summary
    assert "0 shown" in said("list", "--topic", "tallygate.grants")
    shown = said("show", place, "--out", str(tmp_path / "bytes"))
    assert "key: gw-1" in shown
    assert broken[:16].hex(" ") in shown
    assert broken == (tmp_path / "bytes").read_bytes()
    assert "would be set aside again" in said("redrive", place, code=1)
    assert "there is no letter" in said("redrive", place.replace("@4", "@5"), code=1)

    (tmp_path / "repaired").write_bytes(blocks[4])
    assert "@10 now; 0 open" in said("redrive", place, "--payload", str(tmp_path / "repaired"), "--by", "ada")
    log.wait_for(10)
    assert "0 open, 0 shown" == said("list").strip()
    assert "by ada" in said("list", "--all")
    assert "by ada" in said("redrive", place, code=1)
    said("redrive", place, "--payload", str(tmp_path / "repaired"), "--again")
    log.send([("gw-1", _block(10))])
    log.wait_for(11)

    assert (11, 0, 1) == (log.decisions(), log.conflicting(), log.repeated())


def test_letter_that_is_driven_by_two_at_once_and_by_a_dying_one_counts_once(
    log: Recording, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two who are woken do the same; one of them loses his shell. Marks say from where its decisions are on record."""
    blocks = [_block(seq) for seq in range(4)]
    log.send([("gw-1", b"\xff" + block[1:] if seq in (1, 2) else block) for seq, block in enumerate(blocks)])
    log.start()
    log.wait_for_all()
    (partition,) = {int(str(one)) for (one,) in log.rows("SELECT log_partition FROM dead_letters FINAL")}
    for seq in (1, 2):
        (tmp_path / f"repaired-{seq}").write_bytes(blocks[seq])

    def words(seq: int) -> list[str]:
        place, payload = f"tallygate.decisions[{partition}]@{seq}", str(tmp_path / f"repaired-{seq}")
        return ["dead-letters", "redrive", place, "--payload", payload, "--by", "ada"]

    # Killed once the broker has it, before that is written down.
    dying = "command.mark = lambda *_: os.kill(os.getpid(), 9)"
    program = f"import os; from aggregator.dead_letters import command; {dying}; command.main({words(1)[1:]!r})"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=120).returncode == -9
    log.wait_for(3)
    assert 0 == log.number("SELECT count() FROM redriven")
    assert 0 == main(words(1))
    assert f"is on record already, from tallygate.decisions[{partition}]@4; 1 open" in capsys.readouterr().out
    with ThreadPoolExecutor(2) as both:
        codes = list(both.map(main, [words(2), words(2)]))
    log.wait_for(4)
    log.send([("gw-1", _block(4))])
    log.wait_for(5)

    assert 0 in codes
    assert (5, 0) == (log.decisions(), log.conflicting())
    assert [(1, 4), (2, 5)] == log.rows("SELECT log_offset, to_offset FROM redriven FINAL ORDER BY log_offset")
    assert [(1, 4), (2, 5)] == log.rows("SELECT seq, log_offset FROM decisions FINAL WHERE seq IN (1, 2) ORDER BY seq")
    capsys.readouterr()
    assert 0 == main(["dead-letters", "list", "--all"])
    assert "0 open, 2 shown" in capsys.readouterr().out


def test_mark_of_a_letter_keeps_the_first_place(database_dsn: str) -> None:
    """What it states is on record from there; the settler explains by it what the live totals lack."""
    migrate(database_dsn)
    with closing(ClickHouseStore.connect(database_dsn)) as store:
        letter = StoredLetter(LetterPlace("tallygate.decisions", 1, 9), "log-1", 1, "once unreadable", b"", b"", 0, "")
        for offset in (12, 11, 13):
            mark(store, letter, Mark(1, f"ada-{offset}", False, 1, offset))
        mark(store, replace(letter, log_id="log-2"), Mark(1, "ada", False, 1, 3))
        store.command("OPTIMIZE TABLE redriven FINAL")
        marks = store.rows("SELECT log_id, by, to_offset FROM redriven ORDER BY log_id")

    assert [("log-1", "ada-13", 11), ("log-2", "ada", 3)] == list(marks)


def test_dead_letters_names_what_cannot_be_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever is called at night reads which address is wrong."""
    monkeypatch.setenv("TALLYGATE_CLICKHOUSE", "http://127.0.0.1:9/tallygate")
    assert 3 == main(["dead-letters", "list"])
    assert "http://127.0.0.1:9/tallygate" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["dead-letters", "show", "nowhere"])
