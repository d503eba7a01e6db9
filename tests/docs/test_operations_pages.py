"""The operator's pages: every command on them is run on a record made for it, and says what the page says."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from aggregator.audit.command import ACTIONS
from aggregator.audit.lag import action
from aggregator.core.record.letters import DeadLetter, dead_letter_batches
from enforcer.metrics.register import REGISTER
from stream.contract.codec import encode_block
from stream.contract.decode import decode_block
from stream.contract.layout import CorruptBlock
from tallygate import cli
from tests.recordblocks import Made, make_block
from tests.recordrows import insert, record_blocks, record_control
from tests.settling import LOG_ID, SettlingScene, utc_us

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "operations"
PAGE = FOLDER / "lag-gaps-dead-letters.md"
_SECOND_US = 1_000_000
_AT_US = utc_us("2026-11-30T10:00")
_SAID = re.compile(r"^```sh\n(?P<command>[^`]*)```\n+```text\n(?P<said>[^`]*)```", re.MULTILINE)
_CALLED = re.compile(r"`tallygate ([a-z-]+)(?: ([a-z-]+))?[^`]*`")
_LINE = re.compile(r"^\| \w[\w ]* \| `(?P<line>[^`]*)` \|", re.MULTILINE)


def _seal(scene: SettlingScene, spans: list[tuple[int, int, int]], *, copy_id: str, epoch: int) -> None:
    """Blocks of these (second, first seq, end)."""
    blocks = [
        make_block(
            [Made(at_us=_AT_US + second * _SECOND_US)] * (end - first),
            copy_id=copy_id,
            epoch=epoch,
            first_seq=first,
            sealed_at_us=_AT_US + second * _SECOND_US,
        )
        for second, first, end in spans
    ]
    record_blocks(scene.store, blocks, first_offset=epoch * 100)


def _spoil(scene: SettlingScene) -> None:
    """A letter that nobody can read, as the recorder sets it aside."""
    broken = encode_block([], copy_id="gw-1", epoch=7, first_seq=0, sealed_at_us=1, clock_offset_ns=0)[:40]
    with pytest.raises(CorruptBlock) as caught:
        decode_block(broken)
    seen_us = _AT_US + 1_201 * _SECOND_US
    letter = DeadLetter("tallygate.decisions", 1, 9, seen_us, str(caught.value), b"gw-1", broken, LOG_ID)
    insert(scene.store, dead_letter_batches([letter]))


@pytest.fixture
def night(database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A record with something of everything that an operator is called for; TALLYGATE_CLICKHOUSE names it."""
    monkeypatch.setenv("TALLYGATE_CLICKHOUSE", database_dsn)
    scene = SettlingScene(database_dsn)
    for table in ("blocks", "control", "dead_letters"):
        scene.store.command(f"SYSTEM STOP TTL MERGES {table}")
    _seal(scene, [(0, 0, 300), (1_199, 300, 600), (1_200, 640, 700)], copy_id="gw-1", epoch=7)
    _seal(scene, [(10, 0, 200)], copy_id="gw-2", epoch=9)
    record_control(scene.store, "decisions_lost", epoch=7, at_us=_AT_US, first_seq=600, count=25, cause="no room")
    _spoil(scene)
    time = "fromUnixTimestamp64Micro({at:Int64}, 'UTC')"
    at = {"at": _AT_US + 1_201 * _SECOND_US}
    for partition, recorded, live, settled in ((0, 42, 42, 42), (1, 17, 12, 17)):
        numbers = {"partition": partition, "recorded": recorded, "live": live, "settled": settled}
        scene.store.command(
            "INSERT INTO recorded (topic, log_partition, log_id, next_offset, stored_at) SELECT 'tallygate.decisions', "
            f"{{partition:UInt16}}, '{LOG_ID}', {{recorded:UInt64}}, {time}",
            {**numbers, **at},
        )
        scene.store.command(
            "INSERT INTO live (kind, scope, log_partition, version) "
            f"SELECT 'progress', '{LOG_ID}', {{partition:UInt16}}, {{live:UInt64}}",
            numbers,
        )
    scene.store.command(
        f"INSERT INTO settled_progress SELECT 'settler', 59, {time}, [('{LOG_ID}', 0, 42), ('{LOG_ID}', 1, 17)], "
        f"[{_AT_US // 60_000_000 + 20}], [], []",
        at,
    )
    minute = {"minute": _AT_US // _SECOND_US + 18 * 60}
    time_of = "toDateTime({minute:UInt32}, 'UTC')"
    scene.store.command(f"INSERT INTO live (kind, minute, offered) SELECT 'fleet', {time_of}, 300", minute)
    scene.store.command(f"INSERT INTO signals (kind, minute, offered) SELECT 'fleet', {time_of}, 300", minute)
    monkeypatch.setattr(action, "find", partial(action.find, now_us=_AT_US + 1_276 * _SECOND_US))
    scene.store.command(
        "INSERT INTO disagreements (kind, minute, caller, found_at, live_offered, live_admitted, settled_offered, "
        f"settled_admitted, version) SELECT 'live', '2026-11-30 10:00:00', 'acme', {time}, 3, 3, 5, 5, 59",
        at,
    )
    yield
    scene.close()


def _run(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What it writes, and its exit code if that is not 0."""
    if command.startswith("tallygate "):
        code = cli.main(shlex.split(command)[1:])
        told = capsys.readouterr()
        return told.out + told.err + (f"exit code {code}\n" if code else "")
    (defined,) = re.findall(r"^```sh\n(ask\(\) .*?)```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    done = subprocess.run(["bash", "-c", defined + command], cwd=tmp_path, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.usefixtures("night")
def test_every_command_says_what_the_page_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who is called at night compares what he sees with the page, word for word."""
    told = list(_SAID.finditer(PAGE.read_text("utf-8")))
    assert 6 <= len(told)
    for one in told:
        assert one["said"] == _run(one["command"].strip(), tmp_path, capsys)


def test_commands_that_the_pages_name_exist() -> None:
    """A command that is gone is found out at the worst time."""
    known = {*cli._PROCESSES, *cli._DELEGATED, "up", "link", "demo", "policy", "sidecar", "--version"}
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("**/*.md")]:
        called = _CALLED.findall(page.read_text("utf-8"))
        assert {command for command, _ in called} <= known, page
        assert {action for command, action in called if command == "audit"} <= {"", *ACTIONS}, page


def test_metrics_that_the_pages_name_exist() -> None:
    """An alert on a metric that nobody exports never fires."""
    for page in FOLDER.glob("*.md"):
        named = set(re.findall(r"\btallygate_[a-z_]+", page.read_text("utf-8")))
        assert named <= {"tallygate_shadow", *REGISTER}, page


def test_lines_that_the_page_explains_are_written_by_somebody() -> None:
    """They are searched for in logs, and found only if the words are the same."""
    code = " ".join(
        path.read_text("utf-8") for part in ("aggregator", "stream") for path in (ROOT / part).rglob("*.py")
    )
    spoken = re.sub(r'"\s*f?"', "", code)
    lines = [found["line"] for found in _LINE.finditer(PAGE.read_text("utf-8"))]
    assert 10 <= len(lines)
    missing = [line for line in lines if not all(part.strip() in spoken for part in line.split("…"))]
    assert [] == missing
