"""``tallygate audit erase``: deletes one caller's record on request, or says whether that was done before.

Deletes nothing without ``--yes``, and never writes the caller's name into what it leaves behind.
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import cast

from aggregator.erasure.erasing import erase
from aggregator.erasure.known import Stated, stated
from aggregator.erasure.letters import letters_of
from aggregator.erasure.places import counted
from aggregator.store import Store
from aggregator.words import Answer, Finding, add_caller, add_json, moment

#: Names from this length on are looked for within words too.
_SHORT = 4
HELP = "delete one caller's record on request, and keep a record of that"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Whose, on whose request, and why."""
    add_caller(parser, required=True)
    parser.add_argument("--by", metavar="WHO", help="who asked for it; needed with --yes")
    parser.add_argument("--reason", metavar="TEXT", help="why; needed with --yes")
    parser.add_argument("--yes", action="store_true", help="do it; without it, say what would go and what is gone")
    add_json(parser)


def run(options: argparse.Namespace, store: Store) -> int:
    """Say what is on record and what was erased; with ``--yes`` erase it first. 0; 1: not finished; 2: wrong call."""
    if options.yes:
        fault = _fault(options)
        if fault:
            sys.stderr.write(f"tallygate audit erase: {fault}\n")
            return 2
        erase(
            store, options.caller, requested_by=options.by.strip(), reason=options.reason.strip(),
            progress=lambda line: cast(None, sys.stderr.write(f"{line}\n")),
        )  # fmt: skip
    return _answer(store, options.caller).tell(options)


def _fault(options: argparse.Namespace) -> str:
    for name, value in (("--by", options.by), ("--reason", options.reason)):
        text = (value or "").strip()
        if not 0 < len(text) <= 1_000 or not text.isprintable():
            return f"{name} is {text[:80]!r}; allowed: 1 to 1,000 printable characters, with --yes"
        if _names(text, options.caller):
            return f"{name} names the caller; allowed: a text without the name, for it stays in the record for good"
    return ""


def _names(text: str, caller: str) -> bool:
    """Whether a text holds a caller's name; a short one stands in other words by chance, and must be one by itself."""
    name = re.escape(caller)
    pattern = name if len(caller) >= _SHORT else rf"(?<!\w){name}(?!\w)"
    return bool(caller) and re.search(pattern, text, re.IGNORECASE) is not None


def _answer(store: Store, caller: str) -> Answer:
    """What is there of a caller, and which erasures of it there were."""
    left = counted(store, caller)
    own = [one for one in stated(store) if one.erasure.is_of(caller)]
    findings = [_told(one) for one in own]
    findings += [
        Finding(f"{table}: {rows:,} rows on record", {"table": table, "rows": rows}) for table, rows in left.items()
    ]
    letters = letters_of(store, caller)
    unread = letters.unread
    if letters.shared:
        line = (
            f"{letters.shared:,} dead letters hold decisions of others too; they were left: re-drive them "
            "(tallygate dead-letters), which leaves the caller's out, and erase again"
        )
        findings.append(Finding(line, {"shared_letters": letters.shared}))
    if unread:
        line = f"{unread:,} dead letters that cannot be decoded hold the bytes of this name; they were left"
        findings.append(Finding(line, {"unread_letters": unread}))
    finished = sum(one.state == "done" for one in own)
    summary = f"erased {finished} times, {sum(left.values()):,} rows on record"
    return Answer(finished == len(own), summary, findings, {"erased": finished, "rows": left})


def _told(one: Stated) -> Finding:
    rows = ", ".join(f"{table} {count:,}" for table, count in one.removed.items()) or "nothing yet"
    state = "erased" if one.state == "done" else "erasure not finished, run it again"
    line = (
        f"{state}: {one.name}, begun {moment(one.begun_us)}, all before {moment(one.erasure.erased_before_us)}, "
        f"by {one.requested_by}: {one.reason}; rows: {rows}"
    )
    facts = {
        "before": moment(one.erasure.erased_before_us), "begun": moment(one.begun_us), "by": one.requested_by,
        "erasure": one.name, "reason": one.reason, "removed": one.removed, "state": one.state,
    }  # fmt: skip
    return Finding(line, facts)
