"""The end of a chaos run: the copies stop, the readers catch up, and the audit says what is there."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence

from tests.chaos.audit import Audit, Finding
from tests.chaos.stack import READERS, Stack
from tests.processes import wait_until

#: Without a change for so long, after everything has ended, nothing more is coming.
_QUIET_S = 4.0
_LIMIT_S = 240.0
#: Most that a killed copy may take with it: what it had not shipped, about two seconds.
CUT_S = 3.0


def settle(stack: Stack) -> list[Finding]:
    """Stop the copies, wait until the readers have read everything, end them, and compare.

    Returns one finding an epoch. Raises `AssertionError` if a process did not end in good order, or if live or
    settled totals differ from the record.
    """
    stack.stop_copies()
    audit = Audit(stack.dsn)
    _wait_quiet(audit)
    closed_s = int(time.time()) // 60 * 60
    wait_until(
        lambda: not audit.settled_differences(before_s=closed_s),
        _LIMIT_S,
        what="settled totals of all closed minutes",
        poll_s=1,
    )
    codes = {name: stack.parts[name].end() for name in READERS}
    assert all(code == 0 for code in codes.values()), f"a reader did not end in order: {codes}"
    differences = audit.live_differences()
    assert not differences, f"{len(differences)} cells of the live totals differ: {differences[:5]}"
    differences = audit.settled_differences(before_s=closed_s)
    assert not differences, f"{len(differences)} cells of the settled totals differ: {differences[:5]}"
    assert audit.disagreements() == 0, "the settler found live and settled totals apart"
    findings = audit.epochs(stack.truths)
    audit.close()
    return findings


def verify(findings: Sequence[Finding], *, most_cut: int) -> None:
    """Raise `AssertionError` unless every epoch is whole, but for what a killed process took with it."""
    faults = [f"{one.copy_id}/{one.epoch}: {fault}" for one in findings for fault in one.faults]
    assert not faults, "\n".join(faults)
    cut = [one for one in findings if one.cut > most_cut]
    assert not cut, f"killed copies took more with them than {most_cut} decisions: {cut}"


def report(findings: Sequence[Finding]) -> str:
    """The audit as a table, one line an epoch."""
    lines = [f"{'copy':<10} {'epoch':>20} {'decided':>10} {'recorded':>10} {'declared':>9} {'cut':>6}  faults"]
    lines += [
        f"{one.copy_id:<10} {one.epoch:>20} {one.decided:>10,} {one.recorded:>10,} {one.declared:>9,} "
        f"{one.cut:>6,}  {'; '.join(one.faults) or '-'}"
        for one in findings
    ]
    totals = [sum(getattr(one, name) for one in findings) for name in ("decided", "recorded", "declared", "cut")]
    decided, recorded, declared, cut = totals
    lines.append(f"{'all':<10} {'':>20} {decided:>10,} {recorded:>10,} {declared:>9,} {cut:>6,}")
    return "\n".join(lines)


def _wait_quiet(audit: Audit) -> None:
    """Return once record and live totals agree and stand still."""
    deadline_s = time.monotonic() + _LIMIT_S
    before, since_s = -1, time.monotonic()
    while time.monotonic() < deadline_s:
        raw, live = audit.raw(), audit.live()
        if raw != before or raw != live:
            before, since_s = raw, time.monotonic()
        elif time.monotonic() - since_s >= _QUIET_S:
            return
        time.sleep(0.3)
    raise TimeoutError(f"the record ({audit.raw():,}) and the live totals ({audit.live():,}) did not come to rest")


def own_words(stack: Stack) -> list[tuple[str, int, str]]:
    """What the product's own audits say of the record: action, exit code and what was printed."""
    said = []
    for action in ("verify", "reconcile", "gaps"):
        done = subprocess.run(
            [sys.executable, "-m", "tallygate", "audit", action],
            env={**os.environ, "TALLYGATE_CLICKHOUSE": stack.dsn},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        said.append((action, done.returncode, done.stdout + done.stderr))
    return said
