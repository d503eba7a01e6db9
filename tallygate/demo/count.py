"""Holds what the HTTP client saw beside what the record holds, caller by caller. Pure, apart from two queries."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from aggregator.store import Store
from tallygate.demo.load import Seen
from tallygate.demo.missing import Missing

#: The exact record, and the live totals that the pages read: both must agree with the client.
_RAW = """
SELECT caller, countIf(allowed), countIf(NOT allowed), uniqExact(copy_id), countIf(source = 'degraded')
FROM decisions FINAL GROUP BY caller
"""
_LIVE = """
SELECT caller, sum(admitted), sum(offered) - sum(admitted)
FROM live FINAL WHERE kind = 'usage' GROUP BY caller
"""


@dataclass(frozen=True, slots=True)
class CallerCount:
    """One caller, counted three times: by the client, in the raw record, in the live totals.

    `decided_alone` is how many of the recorded decisions a copy made without the owner, which did not answer in time.
    """

    caller: str
    sent: int
    http_200: int
    http_429: int
    recorded_admitted: int
    recorded_refused: int
    live_admitted: int
    live_refused: int
    k: int
    decided_alone: int

    @property
    def fault(self) -> str | None:
        """What does not agree, in words; None if everything does."""
        if self.sent != self.http_200 + self.http_429:
            return f"{self.caller}: {self.sent - self.http_200 - self.http_429} requests got neither 200 nor 429"
        if (self.http_200, self.http_429) != (self.recorded_admitted, self.recorded_refused):
            return (
                f"{self.caller}: the client saw {self.http_200} × 200 and {self.http_429} × 429, "
                f"the record holds {self.recorded_admitted} admitted and {self.recorded_refused} refused"
            )
        if (self.http_200, self.http_429) != (self.live_admitted, self.live_refused):
            return (
                f"{self.caller}: the client saw {self.http_200} × 200 and {self.http_429} × 429, "
                f"the live totals say {self.live_admitted} admitted and {self.live_refused} refused"
            )
        return None


def count(seen: Mapping[str, Seen], store: Store) -> list[CallerCount]:
    """Read both counts of the record and put them beside what the client saw, one row a caller."""
    raw = {caller: tuple(int(number) for number in numbers) for caller, *numbers in store.rows(_RAW)}
    live = {caller: (int(admitted), int(refused)) for caller, admitted, refused in store.rows(_LIVE)}
    counts = []
    for caller in sorted({*seen, *raw, *live}):
        client = seen.get(caller, Seen())
        admitted, refused, k, decided_alone = raw.get(caller, (0, 0, 0, 0))
        live_admitted, live_refused = live.get(caller, (0, 0))
        counts.append(
            CallerCount(
                caller=caller,
                sent=client.sent,
                http_200=client.statuses[200],
                http_429=client.statuses[429],
                recorded_admitted=admitted,
                recorded_refused=refused,
                live_admitted=live_admitted,
                live_refused=live_refused,
                k=k,
                decided_alone=decided_alone,
            )
        )
    return counts


def table(counts: Sequence[CallerCount]) -> str:
    """The counts as a table for a terminal."""
    heads = ("caller", "sent", "200", "429", "admitted", "refused", "live adm.", "live ref.", "k", "")
    rows = [
        (
            row.caller,
            *(
                f"{number:,}"
                for number in (
                    row.sent,
                    row.http_200,
                    row.http_429,
                    row.recorded_admitted,
                    row.recorded_refused,
                    row.live_admitted,
                    row.live_refused,
                    row.k,
                )
            ),
            "equal" if row.fault is None else "NOT EQUAL",
        )
        for row in counts
    ]
    widths = [max(len(row[place]) for row in (heads, *rows)) for place in range(len(heads))]
    lines = [
        "  ".join(
            cell.ljust(width) if place in {0, len(heads) - 1} else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (heads, *rows)
    ]
    return "\n".join((lines[0], "-" * max(len(line) for line in lines), *lines[1:]))


def write_report(path: Path, counts: Sequence[CallerCount], missing: Sequence[Missing], *, seconds: float) -> None:
    """Write the counts as JSON: `equal`, `seconds`, `decisions`, `callers`, and `lost_gateways` with their gaps."""
    document = {
        "equal": all(row.fault is None for row in counts) and not missing,
        "seconds": round(seconds, 3),
        "decisions": sum(row.recorded_admitted + row.recorded_refused for row in counts),
        "callers": [asdict(row) for row in counts],
        "lost_gateways": [{**asdict(gateway), "missing": gateway.decisions} for gateway in missing],
    }
    path.write_text(json.dumps(document, indent=2) + "\n")
