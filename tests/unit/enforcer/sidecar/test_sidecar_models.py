"""What the sidecar answers of a verdict, without a server."""

from __future__ import annotations

import msgspec

from enforcer.sidecar.models import answer_of
from enforcer.sidecar.openapi import openapi
from tests.unit.enforcer.harness import Fleet, make_policy


def test_the_answer_names_a_quota_as_a_quota_and_a_bucket_as_a_bucket() -> None:
    """The average rate of a quota is no limit: a client that paces itself by it waits for nothing, all day."""
    plans = {"standard": {"rate_per_s": 100, "burst": 200, "limits": {"day": {"quota": 1, "per": "day"}}}}
    limiter = Fleet(make_policy(plans=plans)).limiter
    first, second = (msgspec.to_builtins(answer_of(limiter, limiter.check("acme"))) for _ in range(2))
    assert {"name": "rate", "plan": "standard", "rate_per_s": 100.0, "burst": 200} == first["limit"]
    assert {"name": "day", "plan": "standard", "quota": 1, "per": "day"} == second["limit"]
    schema = openapi()["components"]["schemas"]["LimitAnswer"]
    assert {*first["limit"], *second["limit"]} == set(schema["properties"])
    assert ["name", "plan"] == schema["required"]
