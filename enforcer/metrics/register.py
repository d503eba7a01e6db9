"""Every metric of a copy: its name, kind, unit, labels and meaning. The only place where one is named.

A name that is none does not pass mypy, and `docs/reference/metrics.md` is compared with this by a test. No label ever
holds a caller: callers are many, and a series for each would outgrow whatever collects them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final, Literal, TypeAlias

CounterName: TypeAlias = Literal[
    "tallygate_decisions_total",
    "tallygate_asks_total",
    "tallygate_owner_clock_steps_back_total",
    "tallygate_grants_total",
    "tallygate_granted_tokens_total",
    "tallygate_degrade_changes_total",
    "tallygate_cap_refused_total",
    "tallygate_cap_abandoned_total",
    "tallygate_sink_lost_total",
    "tallygate_sidecar_connections_refused_total",
    "tallygate_envoy_unmatched_total",
]
GaugeName: TypeAlias = Literal[
    "tallygate_degraded",
    "tallygate_owner_clock_back",
    "tallygate_callers",
    "tallygate_tokens_held",
    "tallygate_cap_in_flight",
    "tallygate_cap_bound",
    "tallygate_sidecar_connections",
    "tallygate_spool_bytes",
    "tallygate_spool_decisions",
    "tallygate_spool_oldest_seconds",
]
HistogramName: TypeAlias = Literal["tallygate_check_seconds", "tallygate_owner_seconds", "tallygate_k"]
Name: TypeAlias = CounterName | GaugeName | HistogramName

_FAST_S = (1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 1.0)
_ROUND_TRIP_S = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0)
_COPIES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        kind: counters only rise, within the life of a copy.
        unit: of its values.
        meaning: one sentence.
        labels: names of its labels, in order.
        bounds: upper bounds of a histogram's buckets, rising; the last one, +Inf, is left out.
    """

    kind: Literal["counter", "gauge", "histogram"]
    unit: str
    meaning: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()


COUNTERS: Final[Mapping[CounterName, Metric]] = {
    "tallygate_decisions_total": Metric(
        "counter", "decisions", "Decisions by who decided and why it was refused.", ("allowed", "source", "reason")
    ),
    "tallygate_asks_total": Metric(
        "counter", "asks", "Asks of an owner: answered, fault (of one bucket) or unavailable.", ("owner", "outcome")
    ),
    "tallygate_owner_clock_steps_back_total": Metric(
        "counter", "steps", "Times that this copy saw an owner's clock behind an earlier answer.", ("owner",)
    ),
    "tallygate_grants_total": Metric("counter", "grants", "Grants that owners issued to this copy."),
    "tallygate_granted_tokens_total": Metric("counter", "tokens", "Tokens in these grants."),
    "tallygate_degrade_changes_total": Metric(
        "counter", "changes", "Times that this copy began, or ceased, to decide without an owner.", ("owner", "to")
    ),
    "tallygate_cap_refused_total": Metric(
        "counter", "requests", "Requests for which there was no room.", ("priority",)
    ),
    "tallygate_cap_abandoned_total": Metric(
        "counter", "requests", "Slots that nobody released: above 0 some response is not closed as it should be."
    ),
    "tallygate_sink_lost_total": Metric(
        "counter", "items", "What the sink could not record: decisions or facts.", ("what",)
    ),
    "tallygate_sidecar_connections_refused_total": Metric(
        "counter", "connections", "Connections to the sidecar that were one too many."
    ),
    "tallygate_envoy_unmatched_total": Metric(
        "counter", "descriptors", "Descriptors of Envoy that no rule of the policy was for.", ("domain",)
    ),
}
GAUGES: Final[Mapping[GaugeName, Metric]] = {
    "tallygate_degraded": Metric("gauge", "0 or 1", "Whether this copy decides without the owner.", ("owner",)),
    "tallygate_owner_clock_back": Metric(
        "gauge", "steps", "Most times that any one bucket's owner says to have seen its clock step back.", ("owner",)
    ),
    "tallygate_callers": Metric("gauge", "callers", "Buckets of callers that this copy knows at the moment."),
    "tallygate_tokens_held": Metric("gauge", "tokens", "Tokens of grants that this copy holds and has not spent."),
    "tallygate_cap_in_flight": Metric("gauge", "requests", "Requests in flight, as the cap counts them."),
    "tallygate_cap_bound": Metric("gauge", "requests", "Most requests that may be in flight; absent without a bound."),
    "tallygate_sidecar_connections": Metric("gauge", "connections", "Connections to the sidecar that are open."),
    "tallygate_spool_bytes": Metric("gauge", "bytes", "What this copy keeps on disk because Kafka has not taken it."),
    "tallygate_spool_decisions": Metric("gauge", "decisions", "Decisions in it; 0 as soon as Kafka has taken all."),
    "tallygate_spool_oldest_seconds": Metric("gauge", "seconds", "How long the oldest of it has been there."),
}
HISTOGRAMS: Final[Mapping[HistogramName, Metric]] = {
    "tallygate_check_seconds": Metric(
        "histogram", "seconds", "What one check in sixteen took, waiting for the owner included.", bounds=_FAST_S
    ),
    "tallygate_owner_seconds": Metric(
        "histogram", "seconds", "What one round trip to an owner took, whatever came of it.", bounds=_ROUND_TRIP_S
    ),
    "tallygate_k": Metric("histogram", "copies", "Copies that a caller reaches, at each answer.", bounds=_COPIES),
}
REGISTER: Final[Mapping[Name, Metric]] = dict[Name, Metric](chain(COUNTERS.items(), GAUGES.items(), HISTOGRAMS.items()))


def reference_table() -> str:
    """The table of `docs/reference/metrics.md`."""
    lines = ["| metric | kind | unit | labels | what it is |", "|---|---|---|---|---|"]
    for name, metric in REGISTER.items():
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
        lines.append(f"| `{name}` | {metric.kind} | {metric.unit} | {labels} | {metric.meaning} |")
    return "\n".join(lines) + "\n"
