"""``tallygate dead-letters list|show|redrive``: reads the words, asks the record, prints what it found.

Exit codes: 0 done, 1 there is no such letter or it cannot be read after all, 2 wrong call, 3 the database or the broker
could not be asked.
"""

from __future__ import annotations

import argparse
import getpass
import os
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from aggregator.broker import LogUnavailable
from aggregator.config import AggregatorConfig
from aggregator.dead_letters.letters import (
    LetterPlace,
    Mark,
    StoredLetter,
    block_on_record,
    letters,
    letters_at,
    mark,
    open_letters,
    place_of,
)
from aggregator.dead_letters.redrive import KafkaLog, Unreadable, redrive
from aggregator.store import Store, StoreRefused, StoreUnavailable
from aggregator.store_clickhouse import ClickHouseStore
from aggregator.words import add_span, moment, span_of, text_of
from stream.contract.topics import DECISIONS

_NO, _NOT_ASKED = 1, 3
_SHOWN_BYTES = 512


def main(words: Sequence[str]) -> int:
    """Run one action on the record and the log of the environment; returns its exit code.

    Raises:
        ConfigError: a setting is wrong.
    """
    options = parser().parse_args(words)
    config = AggregatorConfig.from_env()
    try:
        with closing(ClickHouseStore.open(config.clickhouse)) as store:
            if options.action == "list":
                return _list(options, store)
            letter = _the_letter(options, store)
            if letter is None:
                return _NO
            return (
                _show(options, letter) if options.action == "show" else _redrive(options, store, letter, config.kafka)
            )
    except (StoreUnavailable, StoreRefused, LogUnavailable) as fault:
        return _say(f"{fault}", _NOT_ASKED)
    except OSError as fault:
        if fault.filename is None:
            # Of no file that was named: of standard output, as whoever called says.
            raise
        return _say(f"{fault.filename}: {fault.strerror}", 2)


def _list(options: argparse.Namespace, store: Store) -> int:
    span = span_of(options)
    found = letters(store, **span.parameters, topic=options.topic or "", redriven_too=options.all, most=options.limit)
    for one in found:
        state = f"re-driven {moment(one.redriven_us)} by {one.by}" if one.by else "open"
        line = f"{one.place}  {moment(one.seen_us)}  {one.size:,} bytes  {state}  {one.reason}"
        sys.stdout.write(text_of([line]))
    sys.stdout.write(f"{open_letters(store):,} open, {len(found):,} shown\n")
    return 0


def _show(options: argparse.Namespace, letter: StoredLetter) -> int:
    if options.out is not None:
        options.out.write_bytes(letter.payload)
    state = f"re-driven {moment(letter.redriven_us)} by {letter.by}" if letter.by else "open"
    head = letter.payload[:_SHOWN_BYTES]
    lines = [
        f"{letter.place}  {state}",
        f"log: {letter.log_id or '(not recorded)'}",
        f"seen: {moment(letter.seen_us)}",
        f"reason: {letter.reason}",
        f"key: {_text(letter.key)}",
        f"payload: {len(letter.payload):,} bytes"
        + (f", the first {len(head)} shown" if len(head) < len(letter.payload) else ""),
        *(
            f"  {at:06x}  {head[at : at + 16].hex(' '):<47}  {_text(head[at : at + 16])}"
            for at in range(0, len(head), 16)
        ),
    ]
    sys.stdout.write(text_of(lines))
    return 0


def _redrive(options: argparse.Namespace, store: Store, letter: StoredLetter, kafka: str) -> int:
    if letter.by and not options.again:
        return _say(
            f"{letter.place} was re-driven {moment(letter.redriven_us)} by {letter.by}; --again does it again", _NO
        )
    payload = letter.payload if options.payload is None else options.payload.read_bytes()
    now_us = time.time_ns() // 1_000
    stood: tuple[int, int] | None = None
    try:
        if letter.place.topic == DECISIONS.name and not options.again:
            stood = block_on_record(store, payload)
        partition, offset = stood or (
            letter.place.partition,
            redrive(KafkaLog(kafka), letter, payload, now_us=now_us),
        )
    except Unreadable as fault:
        repaired = (
            "repair it and give the bytes with --payload FILE" if options.payload is None else "repair it further"
        )
        return _say(f"{letter.place} would be set aside again: {fault}; {repaired}", _NO)
    # Only now: ended in between, it is still open, and doing it again counts nothing twice.
    mark(store, letter, Mark(now_us, options.by, options.payload is not None, partition, offset))
    again = LetterPlace(letter.place.topic, partition, offset)
    stands = "is on record already, from" if stood else "stands at"
    sys.stdout.write(f"{letter.place} {stands} {again}{'' if stood else ' now'}; {open_letters(store):,} open\n")
    return 0


def _the_letter(options: argparse.Namespace, store: Store) -> StoredLetter | None:
    """The one letter that is meant; says what is wrong if there is none, or more than one."""
    found = [one for one in letters_at(store, options.place) if options.log in {None, one.log_id}]
    if not found:
        _say(f"there is no letter {options.place}; `tallygate dead-letters list --all` shows all", _NO)
        return None
    if len(found) > 1:
        ids = ", ".join(one.log_id or "''" for one in found)
        _say(f"{options.place} is a place in {len(found)} logs of that name; say which with --log: {ids}", _NO)
        return None
    return found[0]


def _text(data: bytes) -> str:
    """Bytes as far as they can be printed."""
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)


def _say(text: str, code: int) -> int:
    sys.stderr.write(f"tallygate dead-letters: {text}\n")
    return code


def parser() -> argparse.ArgumentParser:
    """What the command takes."""
    made = argparse.ArgumentParser(
        prog="tallygate dead-letters",
        description="Look at messages that could not be read, and have them read after all.",
    )
    actions = made.add_subparsers(dest="action", required=True, metavar="ACTION")
    listed = actions.add_parser("list", help="the open letters, oldest first: where, when seen, size, reason")
    add_span(listed)
    listed.add_argument("--topic", metavar="NAME", help="of this topic only")
    listed.add_argument("--all", action="store_true", help="those that were re-driven, too")
    listed.add_argument("--limit", type=_count, default=1_000, metavar="N", help="at most so many (1000)")
    show = actions.add_parser("show", help="one letter: why it could not be read, its key and its first bytes")
    show.add_argument("--out", type=Path, metavar="FILE", help="write all of its bytes there")
    again = actions.add_parser("redrive", help="give it to its topic again, for both readers; it counts once")
    again.add_argument("--payload", type=Path, metavar="FILE", help="with these bytes, repaired, instead of its own")
    again.add_argument("--by", type=_who, default=_user(), metavar="NAME", help="who does it (this process's user)")
    again.add_argument("--again", action="store_true", help="also if it was re-driven before")
    for one in (show, again):
        one.add_argument("place", type=_place, metavar="PLACE", help="topic[partition]@offset, as the list writes it")
        one.add_argument("--log", metavar="ID", help="which log of that name, if the topic was made anew")
    return made


def _user() -> str:
    """The name of this process's user; its number where it has none, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def _who(text: str) -> str:
    # An empty one would leave the letter open in one list, and re-driven in the other.
    if not text.strip():
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a name")
    return text


def _place(text: str) -> LetterPlace:
    try:
        return place_of(text)
    except ValueError as fault:
        raise argparse.ArgumentTypeError(str(fault)) from fault


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a whole number from 1 to 1,000,000")
    return int(text)
