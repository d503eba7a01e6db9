"""Dead letters that name a caller: what of them can go, and what stays because others stand in them, or nobody can say.

A letter may be well formed and still be refused, such as one from an impossible time. Never deletes anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from itertools import groupby

from aggregator.core.record.erased import callers_in
from aggregator.core.record.letters import DeadLetter
from aggregator.sql import load_queries
from aggregator.store import Store
from enforcer.identity import CopyIdentity
from stream.contract.codec import CorruptBlock, decode_block
from stream.contract.facts import decode_facts, encode_facts
from stream.contract.topics import DECISIONS, GRANTS

_QUERIES = load_queries("aggregator.sql", "erasure.sql")
#: Letters in memory at a time: a message has a megabyte at most, as brokers are set up.
_AT_ONCE = 32


class Part(Enum):
    """What of a letter is a caller's."""

    NONE = "none"
    SOME = "some"
    ALL = "all"
    #: Decisions of others stand beside its own, under numbers and a hash that are only right together.
    SHARED = "shared"
    UNREAD = "unread"


@dataclass(frozen=True, slots=True)
class Found:
    """A letter in which the bytes of a caller's name stand.

    Attributes:
        letter: as it is; with the bytes that are left without the caller where `part` is SOME.
        hash: of its bytes as they are: another log of the topic has the same places.
    """

    part: Part
    letter: DeadLetter
    hash: int

    @property
    def goes(self) -> bool:
        """Whether it is deleted, or written anew."""
        return self.part in {Part.SOME, Part.ALL}


@dataclass(frozen=True, slots=True)
class Letters:
    """How many dead letters of one caller there are.

    Attributes:
        named: those that name it, and can do without it.
        shared: those with decisions of others too, which nobody has re-driven: they stay until that is done.
        unread: those that cannot be decoded, but hold the bytes of its name: perhaps it, perhaps a part of another
            word. Nobody can say, so they stay.
    """

    named: int
    shared: int
    unread: int


def letters_of(store: Store, caller: str) -> Letters:
    """The dead letters in which a caller's name stands."""
    parts = [Part.ALL if one.goes else one.part for one in each_letter(store, caller)]
    return Letters(parts.count(Part.ALL), parts.count(Part.SHARED), parts.count(Part.UNREAD))


def each_letter(store: Store, caller: str) -> Iterator[Found]:
    """The dead letters that hold the bytes of a caller's name, few at a time."""
    places = store.rows(_QUERIES["letters"].sql, {"caller": caller})
    for (topic, partition), group in groupby(places, key=lambda place: (str(place[0]), int(place[1]))):
        redriven = {(int(offset), str(log_id)): bool(is_it) for _, _, offset, log_id, is_it in group}
        offsets = sorted({offset for offset, _ in redriven})
        for start in range(0, len(offsets), _AT_ONCE):
            where = {"topic": topic, "partition": partition, "offsets": offsets[start : start + _AT_ONCE]}
            for offset, log_id, seen_us, reason, key, payload, hashed in store.rows(
                _QUERIES["letters_at"].sql, {**where, "caller": caller}
            ):
                letter = DeadLetter(
                    topic, partition, int(offset), int(seen_us), str(reason), bytes.fromhex(key),
                    bytes.fromhex(payload), str(log_id),
                )  # fmt: skip
                part, left = part_of(topic, letter.payload, caller)
                # What others decided is on record, or can be read where it stands now.
                if part is Part.SHARED and redriven.get((letter.log_offset, letter.log_id)):
                    part = Part.ALL
                yield Found(part, replace(letter, payload=left) if part is Part.SOME else letter, int(hashed))


def part_of(topic: str, payload: bytes, caller: str) -> tuple[Part, bytes]:
    """What of a message is a caller's, and the message without it where only SOME is."""
    try:
        if topic == DECISIONS.name:
            names = set(decode_block(payload).bases.callers)
            if caller not in names:
                return Part.NONE, payload
            return (Part.SHARED if len(names) > 1 else Part.ALL), payload
        if topic == GRANTS.name:
            return _facts(payload, caller)
    except CorruptBlock:
        return Part.UNREAD, payload
    names = callers_in(payload)
    return (Part.ALL if caller in names else Part.NONE if names else Part.UNREAD), payload


def _facts(payload: bytes, caller: str) -> tuple[Part, bytes]:
    facts = decode_facts(payload)
    grants = [one for one in facts.grants if one.caller != caller]
    settlements = [one for one in facts.settlements if one.caller != caller]
    costs = [one for one in facts.costs if one.caller != caller]
    before = len(facts.grants) + len(facts.settlements) + len(facts.costs)
    after = len(grants) + len(settlements) + len(costs)
    if before == after:
        return Part.NONE, payload
    if not after:
        return Part.ALL, payload
    return Part.SOME, encode_facts(CopyIdentity(facts.copy_id, facts.epoch), grants, settlements, costs)
