"""What the lags mean: which reader is behind, in words and for programs. Pure; asks nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aggregator.words import Answer, Finding, moment, plural

#: Where it stands what to do about each of them.
PAGE = "docs/operations/lag-gaps-dead-letters.md#lag"
#: Partitions and copies that are named in a line; JSON has all partitions.
_MOST_NAMED = 8
_US = 1_000_000
_READERS = ("recorder", "worker", "second stage", "settler")


@dataclass(frozen=True, slots=True)
class Unread:
    """What one reader has not taken of one partition of the log: how many messages, and since when the first waits."""

    topic: str
    partition: int
    messages: int
    since_us: int | None


@dataclass(frozen=True, slots=True)
class ReaderLag:
    """How far one reader is.

    Attributes:
        name: of the reader.
        since_us: since when what it has not taken waits; None if nothing does, or nobody knows since when.
        unread: by partition, where there is any; None where only the log could say.
        until: how far it is, in words.
        in_use: False for a reader that never ran on this database: it is named, and is behind nothing.
        facts: further ones for programs.
    """

    name: str
    since_us: int | None = None
    unread: Sequence[Unread] | None = ()
    until: str = ""
    in_use: bool = True
    facts: Mapping[str, object] = field(default_factory=dict)

    def behind_s(self, now_us: int) -> float:
        """By how many seconds it is behind."""
        return 0.0 if self.since_us is None else max(0, now_us - self.since_us) / _US

    @property
    def messages(self) -> int:
        """How many messages it has not taken."""
        return sum(one.messages for one in self.unread or ())

    def finding(self, now_us: int, *, late: bool) -> Finding:
        """Its line, and the same for programs."""
        behind_s = self.behind_s(now_us)
        line = f"{seconds(behind_s)} behind"
        if self.unread is not None:
            line += f", {plural(self.messages, 'message')}"
        if late and self.unread:
            worst = sorted(self.unread, key=lambda one: (one.since_us or 0, one.topic, one.partition))
            named = [f"{one.topic}[{one.partition}] {plural(one.messages, 'message')}" for one in worst]
            line += f" ({_few(named)})"
        line = "; ".join(part for part in (line if self.in_use else "never ran on this database", self.until) if part)
        facts = {
            "reader": self.name,
            "behind": late,
            "behind_s": behind_s,
            "messages": None if self.unread is None else self.messages,
            "in_use": self.in_use,
            "partitions": [
                {
                    "topic": one.topic,
                    "partition": one.partition,
                    "messages": one.messages,
                    "since_us": one.since_us,
                }
                for one in self.unread or ()
            ],
            **self.facts,
        }
        return Finding(f"{self.name}: {line}", facts)


@dataclass(frozen=True, slots=True)
class CopyHeard:
    """A copy that was heard of lately and did not say that it stopped.

    Attributes:
        sealed_us: up to when its decisions are counted.
        shift_us: by what its clock is corrected.
    """

    copy_id: str
    sealed_us: int
    shift_us: int


@dataclass(frozen=True, slots=True)
class Night:
    """All that was found.

    Attributes:
        now_us: when it was asked.
        readers: in the order in which a decision passes through them.
        copies: those heard of in the last ten minutes.
        letters: open dead letters, and since when the oldest; replays: where, who, since when.
        newest_us: when anything was recorded last; None if never.
        log_asked: whether the log itself was asked; `log_fault`: why it could not be.
    """

    now_us: int
    readers: Sequence[ReaderLag]
    copies: Sequence[CopyHeard]
    letters: tuple[int, int]
    replays: Sequence[tuple[str, str, str]]
    newest_us: int | None
    log_asked: bool
    log_fault: str = ""


#: Three missed heartbeats, as the pages have it.
_COPY_LATE_US = 18 * _US
#: A clock that is further off is worth a word.
_SKEWED_US = 5 * _US


def judged(night: Night, *, within_s: int) -> Answer:
    """The answer: does not agree where a reader is behind by more than so many seconds.

    Cannot say where nothing is on record, where the log did not answer, or where nothing came for so long and the log
    was not asked: then either no copy runs, or all readers stand.
    """
    late = [one for one in night.readers if one.in_use and one.behind_s(night.now_us) > within_s]
    findings = [one.finding(night.now_us, late=one in late) for one in night.readers]
    findings += [*_copies(night), _letters(night.letters), _replays(night.replays)]
    verdict, summary = _verdict(night, late, within_s)
    facts = {
        "behind": [one.name for one in late],
        "log_asked": night.log_asked and not night.log_fault,
        "log_fault": night.log_fault,
        "within_s": within_s,
        "now_us": night.now_us,
        "newest_us": night.newest_us,
    }
    if night.log_fault:
        findings.insert(0, Finding(f"log: {night.log_fault}", {"kind": "log", "fault": night.log_fault}))
    return Answer(verdict, summary, findings, facts)


def _verdict(night: Night, late: Sequence[ReaderLag], within_s: int) -> tuple[bool | None, str]:
    by = "by the log" if night.log_asked and not night.log_fault else "by the record alone"
    if late:
        who = ", ".join(f"the {one.name} {seconds(one.behind_s(night.now_us))}" for one in late)
        first = late[0].name
        return False, f"behind, {by}: {who}; begin with the {first}: start it, or read its log ({PAGE})"
    if night.newest_us is None:
        return None, "nothing is on record; is the recorder running, with this database?"
    silent_s = (night.now_us - night.newest_us) / _US
    if night.log_fault:
        return None, f"the log did not answer; by the record alone, the last was recorded {seconds(silent_s)} ago"
    if silent_s > within_s and not night.log_asked:
        return None, (
            f"nothing was recorded for {seconds(silent_s)}: no copy runs, or Kafka or the recorder stands; "
            f"--log asks Kafka which ({PAGE})"
        )
    quiet = f"; nothing came to the log for {seconds(silent_s)}" if silent_s > within_s else ""
    return True, f"no reader is more than {within_s:,} s behind, {by}{quiet}"


def _copies(night: Night) -> list[Finding]:
    heard = night.copies
    # Behind what is on record: where the recorder stands, that is no copy's fault.
    until_us = night.now_us if night.newest_us is None else min(night.now_us, night.newest_us)
    late = [one for one in heard if until_us - one.sealed_us > _COPY_LATE_US]
    skewed = [one for one in heard if abs(one.shift_us) > _SKEWED_US]
    line = f"copies: {len(heard):,} heard of in the last 10 minutes, {len(late):,} late"
    if late:
        named = [f"{one.copy_id} {seconds((until_us - one.sealed_us) / _US)}" for one in late]
        line += f" ({_few(named)})"
    if skewed:
        named = [f"{one.copy_id} by {one.shift_us / _US:+,.0f} s" for one in skewed]
        line += f"; {len(skewed):,} with a wrong clock, corrected ({_few(named)})"
    facts = {
        "kind": "copies",
        "heard": len(heard),
        "late": [{"copy_id": one.copy_id, "sealed_us": one.sealed_us} for one in late],
        "skewed": [{"copy_id": one.copy_id, "shift_us": one.shift_us} for one in skewed],
    }
    return [Finding(line, facts)]


def _letters(letters: tuple[int, int]) -> Finding:
    number, oldest_us = letters
    line = f"dead letters: {number:,} open"
    if number:
        line += f", the oldest seen at {moment(oldest_us)}: tallygate dead-letters list"
    return Finding(line, {"kind": "dead_letters", "open": number, "oldest_us": oldest_us if number else None})


def _replays(replays: Sequence[tuple[str, str, str]]) -> Finding:
    running = "; ".join(f"into {database} by {who} since {since} UTC" for database, who, since in replays)
    facts = [{"database": database, "who": who, "since": since} for database, who, since in replays]
    return Finding(f"replay: {running or 'none is running'}", {"kind": "replay", "running": facts})


def _few(named: Sequence[str]) -> str:
    more = [f"{len(named) - _MOST_NAMED:,} more"] if len(named) > _MOST_NAMED else []
    return ", ".join([*named[:_MOST_NAMED], *more])


def seconds(number: float) -> str:
    """A length of time with its unit: whole seconds."""
    return f"{number:,.0f} s"
