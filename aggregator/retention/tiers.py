"""Which table is kept for how long: the one register of retention, and the table TTLs that follow from it.

Talks to no database, and never shortens what is kept below the settings: a row goes with its day, or with its month, so
it stays at least as long as was said.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Keep:
    """How long each tier is kept.

    Attributes:
        admitted_days: raw decisions that were admitted.
        refused_days: raw decisions that were refused, and the grants, settlements and costs behind both, with what was
            spent of each grant; never less than `admitted_days`.
        minutes_days: totals by minute and hour, and what says how complete the record is.
        days_years: totals by day.
    """

    admitted_days: int = 14
    refused_days: int = 90
    minutes_days: int = 400
    days_years: int = 10

    def __post_init__(self) -> None:
        """Refused decisions stay at least as long as admitted ones: the table's TTL drops both together at its end."""
        object.__setattr__(self, "refused_days", max(self.refused_days, self.admitted_days))


@dataclass(frozen=True, slots=True)
class Tier:
    """One table's retention.

    Attributes:
        time: the expression whose month decides; where a table is partitioned, it is the one of its partitions, so that
            a whole partition goes at once and is never rewritten.
        of: the tier.
        where: which rows; all of them if empty.
    """

    time: str
    of: str
    where: str = ""


#: Tables without decisions; `decisions` has two tiers, and is in `ttl_of`.
TIERS: dict[str, Tier] = {
    "conflicts": Tier("at", "refused"),
    "grants": Tier("issued_at", "refused"),
    "settlements": Tier("fromUnixTimestamp64Micro(toInt64(grant_id), 'UTC')", "refused"),
    "cost_changes": Tier("at", "refused"),
    "blocks": Tier("sealed_at", "minutes"),
    "control": Tier("at", "minutes"),
    "dead_letters": Tier("seen_at", "minutes"),
    "redriven": Tier("redriven_at", "minutes"),
    "live": Tier("minute", "minutes", "kind IN ('usage', 'caller', 'fleet')"),
    "settled_minutes": Tier("minute", "minutes"),
    "settled_fleet": Tier("minute", "minutes"),
    "settled_days": Tier("day", "days"),
    "quarters": Tier("quarter", "minutes"),
    "quarter_days": Tier("day", "minutes"),
    "rolled_quarters": Tier("quarter", "minutes"),
    "fairness": Tier("minute", "minutes"),
    "disagreements": Tier("minute", "minutes"),
    "grant_minutes": Tier("minute", "refused"),
    "ledger_hours": Tier("hour", "minutes"),
    "missing_minutes": Tier("minute", "minutes"),
}
#: Tables that are kept for good, each with its reason.
FOR_GOOD: dict[str, str] = {
    "migrations": "what the schema is",
    "retention": "since when the record is whole",
    "retention_drops": "what was dropped by hand",
    "erasures": "what was erased, when, and on whose request",
    "erased_blocks": "what the record lacks on purpose",
    "erasing": "empty but while a caller is being erased, or came back",
    "terms": "what limits were; a row a policy version, not a decision",
    "recorded": "versions of settled totals are positions of this journal, and must never fall",
    "settled_progress": "how far totals are settled",
}
#: Tables with a TTL that no setting changes, each with its reason.
BY_THEMSELVES: dict[str, str] = {
    "signals": "of use for days: what is now, held against what is usual",
}
#: Tables of raw facts whose partitions are days or months: what ``retention drop --month`` drops.
RAW = ("decisions", "grants", "settlements", "cost_changes")


def ttl_of(table: str, keep: Keep) -> str:
    """The TTL of a table, in the form in which the engine shows it.

    `decisions` is partitioned by day and both of its tiers end with a day, so a day is rewritten once, when its
    admitted rows go, and dropped as a whole when the refused ones go.

    Raises:
        KeyError: the table is kept for good, or unknown.
    """
    if table == "decisions":
        return (
            f"toDate(at) + toIntervalDay({keep.admitted_days + 1}) WHERE allowed, "
            f"toDate(at) + toIntervalDay({keep.refused_days + 1})"
        )
    tier = TIERS[table]
    span = {
        "refused": f"toIntervalDay({keep.refused_days})",
        "minutes": f"toIntervalDay({keep.minutes_days})",
        "days": f"toIntervalYear({keep.days_years})",
    }[tier.of]
    where = f" WHERE {tier.where}" if tier.where else ""
    return f"(toStartOfMonth({tier.time}) + toIntervalMonth(1)) + {span}{where}"
