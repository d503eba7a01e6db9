"""``python -m tests.chaos --minutes 60``: one fault after the other for as long as asked, and then the audit.

The same seed draws the same faults. Everything that the processes said stays in the folder that is printed.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.faults import draw
from tests.chaos.settling import CUT_S, own_words, report, settle, verify
from tests.chaos.stack import Stack, running_stack

#: What of each audit is printed.
_SHOWN_LINES = 40
_PAUSE_S = (2.0, 12.0)


def main() -> int:
    """Run; 0 if the audit finds every decision once."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--rate", type=float, default=4_000.0, help="decisions per second, all copies together")
    parser.add_argument("--copies", type=int, default=4)
    parser.add_argument("--broker", choices=["apache", "embedded"], default="apache")
    parser.add_argument("--folder", type=Path, help="where everything lies; a new one if not given")
    options = parser.parse_args()
    folder: Path = options.folder or Path(tempfile.mkdtemp(prefix="tallygate-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    _say(f"seed {options.seed}, {options.copies} copies, {options.rate:,.0f} decisions/s, in {folder}")
    with running_stack(folder, broker=options.broker, copies=options.copies, rate_per_s=options.rate) as stack:
        faults = _torment(stack, random.Random(options.seed), until_s=time.monotonic() + 60 * options.minutes)
        _say(f"{faults} faults; the copies stop, and what is left is read")
        findings = settle(stack)
        said = own_words(stack)
    for action, code, text in said:
        sys.stdout.write(
            f"audit {action}: {code}\n" + "".join(f"  {line}\n" for line in text.splitlines()[:_SHOWN_LINES])
        )
    sys.stdout.write(report(findings) + "\n")
    try:
        verify(findings, most_cut=int(CUT_S * options.rate / options.copies))
    except AssertionError as fault:
        sys.stdout.write(f"NOT EXACT: {fault}\n")
        return 1
    sys.stdout.write("exact: every decision once, or named as lost, or gone with the memory of a killed copy\n")
    return 0


def _torment(stack: Stack, dice: random.Random, *, until_s: float) -> int:
    faults = 0
    while time.monotonic() < until_s:
        time.sleep(dice.uniform(*_PAUSE_S))
        happening = draw(dice, stack)
        _say(happening.text)
        happening.do()
        faults += 1
    return faults


def _say(text: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
