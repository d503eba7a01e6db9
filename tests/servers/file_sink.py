"""A sink that writes each fact to a file at once, with the process that it came from: evidence that outlives a worker.

All processes of a test append to one file. `Record` reads it, and says whether it adds up.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from enforcer.identity import CopyIdentity
from enforcer.sink import DegradeChanged, Event, GrantIssued, GrantSettled
from enforcer.types import Verdict

#: Names the file.
SETTING = "TALLYGATE_TEST_RECORD"


class FileSink:
    """Implements `enforcer.sink.Sink`. Every line is one write, so that those of several processes never mix."""

    def __init__(self, identity: CopyIdentity) -> None:
        self._life = f"{identity.copy_id}/{identity.epoch}"
        self._file = os.open(os.environ[SETTING], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._say("started")

    @property
    def capture(self) -> Callable[[Verdict], None]:
        return self._decided

    def grant_issued(self, fact: GrantIssued) -> None:
        self._say("granted", grant=fact.grant.grant_id, caller=fact.caller, tokens=fact.grant.size)

    def grant_settled(self, fact: GrantSettled) -> None:
        total = fact.settlement
        if total.final and fact.member == self._life:
            self._say("settled", grant=total.grant_id, caller=fact.caller, tokens=total.spent)

    def degrade_changed(self, fact: DegradeChanged) -> None:
        self._say("degraded", entered=fact.entered, cause=fact.cause)

    def event(self, fact: Event) -> None:
        self._say(type(fact).__name__)

    def close(self, timeout_s: float) -> None:
        self._say("closed")

    def _decided(self, verdict: Verdict) -> None:
        basis = verdict.basis
        spent = verdict.cost if verdict.allowed else 0
        self._say("decided", seq=verdict.seq, caller=basis.caller, grant=basis.grant_id, tokens=spent)

    def _say(self, what: str, **facts: Any) -> None:
        line = json.dumps({"what": what, "pid": os.getpid(), "life": self._life, **facts})
        os.write(self._file, line.encode() + b"\n")


@dataclass
class Life:
    """What one ``copy_id/epoch`` said: from which processes, and what."""

    pids: set[int] = field(default_factory=set)
    seqs: list[int] = field(default_factory=list)
    granted: dict[tuple[str, int], int] = field(default_factory=dict)
    spent: Counter[tuple[str, int]] = field(default_factory=Counter)
    settled: dict[tuple[str, int], int] = field(default_factory=dict)
    is_closed: bool = False


class Record:
    """What was written until now.

    `left_open` is the process whose limiter nobody closes: that of a parent which only forks.
    """

    def __init__(self, path: Path, *, left_open: int = 0) -> None:
        self._left_open = left_open
        self.lives: dict[str, Life] = defaultdict(Life)
        self.decisions: Counter[tuple[str, bool]] = Counter()
        for line in path.read_text().splitlines():
            self._take(json.loads(line))

    @property
    def served(self) -> dict[str, Life]:
        """Those that decided anything."""
        return {name: life for name, life in self.lives.items() if life.seqs}

    def assert_adds_up(self) -> None:
        """No life is shared, every decision has its own number, and what was spent is what was settled."""
        for name, life in self.lives.items():
            assert 1 == len(life.pids), f"{name} was said by {len(life.pids)} processes"
            assert list(range(len(life.seqs))) == sorted(life.seqs), f"{name} has numbers twice, or left some out"
            assert life.is_closed or life.pids == {self._left_open}, f"{name} was not closed"
            foreign = {grant for grant in life.spent if grant[1] and grant not in life.granted}
            assert not foreign, f"{name} spent grants of others: {foreign}"
            spent = {grant: tokens for grant, tokens in life.spent.items() if grant[1]}
            assert spent == {grant: tokens for grant, tokens in life.settled.items() if tokens}, name
            assert all(tokens <= life.granted[grant] for grant, tokens in spent.items()), name
        grants = [grant for life in self.lives.values() for grant in life.granted]
        assert len(grants) == len(set(grants)), "a grant was issued to two copies"

    def _take(self, line: dict[str, Any]) -> None:
        life = self.lives[line["life"]]
        life.pids.add(line["pid"])
        what = line["what"]
        if what == "closed":
            life.is_closed = True
        elif what in {"granted", "settled", "decided"}:
            grant = (line["caller"], line["grant"])
            if what == "granted":
                life.granted[grant] = line["tokens"]
            elif what == "settled":
                life.settled[grant] = line["tokens"]
            else:
                life.seqs.append(line["seq"])
                self.decisions[line["caller"], line["tokens"] > 0] += 1
                if line["tokens"]:
                    life.spent[grant] += line["tokens"]


def lines_of(path: Path, what: str) -> Iterator[dict[str, Any]]:
    """The facts of one kind, in the order in which they were written."""
    if path.exists():
        yield from (line for text in path.read_text().splitlines() if (line := json.loads(text))["what"] == what)
