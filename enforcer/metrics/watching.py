"""What is read only when somebody looks: a cap's count, a sink's losses, what a limiter holds. It counts nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from enforcer.cap.cap import Cap
from enforcer.limiting.limiter import Limiter
from enforcer.metrics.metrics import Metrics


def watch_limiter(metrics: Metrics, limiter: Limiter) -> None:
    """Callers that it knows, and tokens that it holds."""
    metrics.watch("tallygate_callers", lambda: {(): limiter.holding()[0]})
    metrics.watch("tallygate_tokens_held", lambda: {(): limiter.holding()[1]})


def watch_cap(metrics: Metrics, cap: Cap) -> None:
    """In flight, bound, refused and abandoned. One cap for a copy: those of several are added up."""
    metrics.watch("tallygate_cap_in_flight", lambda: {(): cap.in_flight})
    metrics.watch("tallygate_cap_bound", lambda: {} if (bound := cap.bound) is None else {(): bound})
    metrics.watch(
        "tallygate_cap_refused_total", lambda: {(priority.value,): count for priority, count in cap.refused.items()}
    )
    metrics.watch("tallygate_cap_abandoned_total", lambda: {(): cap.abandoned})


def watch_spool(metrics: Metrics, spool: Callable[[], tuple[float, float, float]]) -> None:
    """What a sink keeps on disk: bytes, decisions, and the age of the oldest in seconds. The sink's owner knows how."""
    metrics.watch("tallygate_spool_bytes", lambda: {(): spool()[0]})
    metrics.watch("tallygate_spool_decisions", lambda: {(): spool()[1]})
    metrics.watch("tallygate_spool_oldest_seconds", lambda: {(): spool()[2]})


def watch_losses(metrics: Metrics, losses: Callable[[], Mapping[str, int]]) -> None:
    """What a sink could not record: totals by what it was, ``decisions`` or ``facts``. The sink's owner knows how."""
    metrics.watch("tallygate_sink_lost_total", lambda: {(what,): count for what, count in losses().items()})
