"""Metrics by direct calls: exact, bounded, and nothing changed of what is measured."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from enforcer.cap.cap import Cap
from enforcer.core.inflight import Priority, rooms_of
from enforcer.errors import InvalidField, OwnerUnavailable
from enforcer.http.asgi import RateLimitMiddleware, Receive, Scope, Send
from enforcer.metrics.measured import MeasuredOwner, MeasuredSink
from enforcer.metrics.metrics import CopyMetrics, NullMetrics
from enforcer.metrics.watching import watch_cap, watch_limiter, watch_losses, watch_spool
from enforcer.testing import RecordingSink
from tests.unit.enforcer.harness import Fleet
from tests.unit.enforcer.metrics.measured_copy import MeasuredCopy


def test_decisions_are_counted_by_outcome_and_handed_on_in_order() -> None:
    """The count of a limiter is worth nothing if it is not that of the record."""
    copy = MeasuredCopy(rate_per_s=1, burst=2)
    for _ in range(5):
        copy.limiter.check("acme")
    copy.limiter.check("acme", cost=9)
    counted = copy.values()["tallygate_decisions_total"]
    assert list(range(6)) == [verdict.seq for verdict in copy.recorded.verdicts]
    assert 6 == sum(counted.values())
    assert 2 == sum(count for (allowed, _, _), count in counted.items() if allowed == "true")
    assert 1 == counted["false", "local", "never"]
    assert 3 == sum(count for (_, _, reason), count in counted.items() if reason == "spent")


def test_owner_is_measured_and_its_outage_is_seen() -> None:
    """Whether the owner answers, and what it lends, is the first question in any trouble."""
    copy = MeasuredCopy()
    copy.limiter.check("acme")
    values = copy.values()
    assert {("memory", "answered"): 1} == values["tallygate_asks_total"]
    assert {(): 1} == values["tallygate_grants_total"]
    assert {(): copy.recorded.grants[0].grant.size} == values["tallygate_granted_tokens_total"]
    assert {("memory",): 0} == values["tallygate_degraded"]
    copy.fleet.owner.away = "tested"
    copy.limiter.check("marlow")
    values = copy.values()
    assert {("memory",): 1} == values["tallygate_degraded"]
    assert 1 == values["tallygate_asks_total"]["memory", "unavailable"]
    assert {("memory", "alone"): 1} == values["tallygate_degrade_changes_total"]
    assert 1 == values["tallygate_decisions_total"]["true", "degraded", "none"]
    read = copy.metrics.read().distributions
    assert (2, 1) == (read["tallygate_owner_seconds"].counts[-1], read["tallygate_k"].counts[-1])


def test_an_owners_clock_that_steps_back_is_counted() -> None:
    """It stops the refill of every bucket until it has caught up: nothing else shows it."""
    copy = MeasuredCopy()
    copy.limiter.check("acme")
    copy.fleet.clock.step_wall(-5)
    copy.limiter.check("marlow")
    copy.limiter.check("zoe")
    assert {("memory",): 1} == copy.values()["tallygate_owner_clock_steps_back_total"]


def test_a_fault_of_one_bucket_is_not_an_outage() -> None:
    """They are mended in different places."""
    copy = MeasuredCopy()
    copy.fleet.owner.spoiled["acme", "rate"] = "tested"
    copy.limiter.check("marlow")
    copy.limiter.check("acme")
    assert {("memory", "answered"): 1, ("memory", "fault"): 1} == copy.values()["tallygate_asks_total"]


def test_what_is_held_is_read_when_somebody_looks() -> None:
    """Gauges that are pulled cost nothing while nobody looks."""
    copy = MeasuredCopy()
    watch_limiter(copy.metrics, copy.limiter)
    cap = Cap(rooms_of(1))
    watch_cap(copy.metrics, cap)
    watch_losses(copy.metrics, lambda: {"decisions": 3, "facts": 1})
    watch_spool(copy.metrics, lambda: (4_096, 120, 7.5))
    copy.limiter.check("acme")
    slot = cap.take()
    assert slot is not None
    assert cap.take(Priority.LOW) is None
    values = copy.values()
    assert {(): 1} == values["tallygate_callers"]
    assert {(): copy.recorded.grants[0].grant.size - 1} == values["tallygate_tokens_held"]
    assert ({(): 1}, {(): 1}) == (values["tallygate_cap_in_flight"], values["tallygate_cap_bound"])
    assert {("low",): 1, ("normal",): 0, ("high",): 0} == values["tallygate_cap_refused_total"]
    assert {("decisions",): 3, ("facts",): 1} == values["tallygate_sink_lost_total"]
    assert [{(): 4_096}, {(): 120}, {(): 7.5}] == [
        values["tallygate_spool_bytes"],
        values["tallygate_spool_decisions"],
        values["tallygate_spool_oldest_seconds"],
    ]


def test_a_metric_that_cannot_be_read_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """One broken gauge must not blind the whole page."""
    metrics = CopyMetrics()

    def broken() -> dict[tuple[str, ...], float]:
        raise OwnerUnavailable("broken by the test")

    metrics.watch("tallygate_callers", broken)
    metrics.put("tallygate_tokens_held", 7)
    values = metrics.read().values
    assert {(): 7} == values["tallygate_tokens_held"]
    assert "tallygate_callers" not in values
    assert "tallygate_callers could not be read" in caplog.text


def test_series_are_bounded_and_nothing_is_lost_beyond() -> None:
    """A label that gets out of hand must cost a label, not the memory."""
    metrics = CopyMetrics()
    for number in range(1_000):
        metrics.add("tallygate_asks_total", 1, f"owner-{number}", "answered")
    series = metrics.read().values["tallygate_asks_total"]
    assert 1_000 == sum(series.values())
    assert len(series) <= 129
    assert 872 == series["(other)", "(other)"]


def test_wrong_use_is_named() -> None:
    """A counter that falls, or a label too few, would be found in a chart, months later."""
    metrics = CopyMetrics()
    with pytest.raises(InvalidField, match="never falls"):
        metrics.add("tallygate_grants_total", -1)
    with pytest.raises(InvalidField, match="labels"):
        metrics.put("tallygate_degraded", 1)


def test_counting_from_many_threads_is_exact() -> None:
    """Totals that lose some under load are lowest when they matter."""
    metrics = CopyMetrics()

    def count() -> None:
        for _ in range(2_000):
            metrics.add("tallygate_grants_total", 1)
            metrics.observe("tallygate_k", 3)

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    snapshot = metrics.read()
    assert {(): 16_000} == snapshot.values["tallygate_grants_total"]
    assert (16_000, 48_000) == (
        snapshot.distributions["tallygate_k"].counts[-1],
        snapshot.distributions["tallygate_k"].total,
    )


def test_a_threaded_sink_hands_on_everything_by_its_close() -> None:
    """The last decisions before a stop are the ones that a deployment is judged by."""
    recorded, metrics = RecordingSink(), CopyMetrics()
    fleet = Fleet()
    sink = MeasuredSink(recorded, metrics)
    verdict = fleet.limiter.check("acme")
    threads = [threading.Thread(target=_capture, args=(sink.capture, verdict)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sink.close(5)
    assert 20_000 == len(recorded.verdicts) == sum(metrics.read().values["tallygate_decisions_total"].values())
    assert 5 == recorded.closed_within_s


def _capture(capture: Callable[[Any], None], verdict: object) -> None:
    for _ in range(5_000):
        capture(verdict)


async def test_middleware_observes_one_check_in_sixteen() -> None:
    """The check's own time, told apart from the application's."""
    copy = MeasuredCopy(rate_per_s=1, burst=1)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def nothing(*_message: object) -> Any:
        return {}

    gateway = RateLimitMiddleware(app, copy.limiter, metrics=copy.metrics)
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"x-account", b"acme")]}
    for _ in range(33):
        await gateway(scope, nothing, nothing)
    assert 3 == copy.metrics.read().distributions["tallygate_check_seconds"].counts[-1]


def test_nobody_who_watches_costs_nothing_but_the_call() -> None:
    """The same code runs in copies that nobody watches."""
    metrics = NullMetrics()
    owner = MeasuredOwner(Fleet().owner, metrics, name="memory", clock=Fleet().clock)
    assert [] == list(owner.ask([]))
    metrics.observe("tallygate_k", 1)
    metrics.watch("tallygate_callers", dict)
