"""A limiter that is built from settings, with metrics."""

from __future__ import annotations

from pathlib import Path

from enforcer.config import EnforcerConfig
from enforcer.metrics.metrics import CopyMetrics
from enforcer.testing import RecordingSink
from enforcer.wiring import build_limiter

_POLICY = Path(__file__).resolve().parents[4] / "examples" / "asgi" / "policy.yaml"


def test_a_built_limiter_is_measured_whole() -> None:
    """A gateway gives one argument, and every decision, its owner and what it knows are counted."""
    metrics, recorded = CopyMetrics(), RecordingSink()
    # Nothing listens on the discard port: the owner is away.
    config = EnforcerConfig(owner_url="redis://user:secret@127.0.0.1:9/0", policy_path=str(_POLICY), copy_id="copy-1")
    limiter = build_limiter(config, sink=lambda _identity: recorded, metrics=metrics)
    limiter.check("acme")
    known = metrics.read().values["tallygate_callers"]
    limiter.close()
    values = metrics.read().values
    assert {(): 1} == known
    assert {("true", "degraded", "none"): 1} == values["tallygate_decisions_total"]
    assert {("redis://127.0.0.1:9/0",): 1} == values["tallygate_degraded"]
    assert 1 == len(recorded.verdicts)
