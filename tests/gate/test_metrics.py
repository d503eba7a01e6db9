"""The reference of the metrics says what the register does."""

from __future__ import annotations

from pathlib import Path

from enforcer.metrics.register import REGISTER, reference_table

ROOT = Path(__file__).resolve().parents[2]


def test_reference_is_what_the_register_says() -> None:
    """Who builds an alarm reads the reference."""
    text = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    assert text.endswith(reference_table())
    for name, metric in REGISTER.items():
        assert (metric.kind == "counter") is name.endswith("_total")
        assert not {"caller", "scope", "key"} & set(metric.labels)
