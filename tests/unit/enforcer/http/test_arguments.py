"""What a middleware is given is checked when it is made: not by a 500 at each request."""

from __future__ import annotations

from typing import Any

import pytest

from enforcer.errors import ConfigError
from enforcer.http.asgi import RateLimitMiddleware
from enforcer.http.wsgi import RateLimitWSGIMiddleware
from enforcer.wiring import build_limiter


@pytest.mark.parametrize("kind", [RateLimitMiddleware, RateLimitWSGIMiddleware])
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"identify": "x-account"}, "identify is 'x-account'; allowed: a callable, such as from_header"),
        ({"scope_of": "GET /"}, "scope_of is 'GET /'; allowed: a callable, or None"),
        ({"limiter": "policy.yaml"}, "limiter is a str; allowed: a Limiter, or a callable"),
    ],
)
def test_a_wrong_argument_is_refused_when_the_middleware_is_made(kind: Any, given: dict[str, Any], says: str) -> None:
    """It was found by the first request of production, and by all others."""
    with pytest.raises(ConfigError) as wrong:
        kind(lambda *_: None, **{"limiter": build_limiter, **given})
    assert says in str(wrong.value)


def test_the_builder_takes_no_path() -> None:
    """The commonest guess of a newcomer; the text may be an address with a password, so it is not shown."""
    with pytest.raises(ConfigError) as wrong:
        build_limiter("redis://:secret@h")  # type: ignore[arg-type]  # wrong on purpose
    assert "config is a str; allowed: an EnforcerConfig, or None for the environment" == str(wrong.value)
