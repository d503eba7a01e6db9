"""Limits on plain functions, sync and async. Here, and only here, a refusal is raised: there is nothing else to return.

Never calls the function of a refused call, and never changes its signature.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar, cast

from enforcer.core.sentences import explain_verdict
from enforcer.errors import ConfigError, EnforcerError
from enforcer.limiting.limiter import Limiter
from enforcer.process import PerProcess
from enforcer.types import Verdict

P = ParamSpec("P")
R = TypeVar("R")


class Refused(EnforcerError):
    """A call of a `limited` function was refused; `verdict` says why, and from when on it may be admitted."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(explain_verdict(verdict))
        self.verdict = verdict


def limited(
    limiter: Limiter | Callable[[], Limiter],
    *,
    caller: str | Callable[..., str],
    scope: str = "default",
    cost: int | Callable[..., int] | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function so that each call is charged before it runs.

    Args:
        limiter: the limiter, or what builds it in the process that calls. Functions that share a limiter must be given
            the same one, or the same `PerProcess`.
        caller: whose limit is charged, or what finds it in the arguments of the call.
        scope: class of the request.
        cost: tokens, or what finds them in the arguments of the call; None for what the policy says of the scope.

    Returns:
        The decorator. What it returns raises `Refused`, and whatever `Limiter.check` raises; a coroutine function does
        when it is awaited, and waits in its event loop. Given an async generator function it raises `ConfigError`.
    """
    find = PerProcess.of(limiter)

    def arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, str, int | None]:
        who = caller(*args, **kwargs) if callable(caller) else caller
        return who, scope, cost(*args, **kwargs) if callable(cost) else cost

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        if inspect.isasyncgenfunction(function):
            raise ConfigError(f"{function.__qualname__} is an async generator; allowed: functions and coroutines")
        if inspect.iscoroutinefunction(function):
            return cast(Callable[P, R], _async(function))

        @functools.wraps(function)
        def check_first(*args: P.args, **kwargs: P.kwargs) -> R:
            verdict = find().check(*arguments(args, kwargs))
            if not verdict.allowed:
                raise Refused(verdict)
            return function(*args, **kwargs)

        return check_first

    def _async(function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        @functools.wraps(function)
        async def check_first(*args: Any, **kwargs: Any) -> Any:
            verdict = await find().acheck(*arguments(args, kwargs))
            if not verdict.allowed:
                raise Refused(verdict)
            return await function(*args, **kwargs)

        return check_first

    return decorate
