"""Answers Envoy's ShouldRateLimit from a limiter: each descriptor is a check of its own, and all must be admitted.

A refusal by one descriptor charges no other: what was admitted before it is refunded, what stands after it is not
checked. What a rule in shadow is for is asked last, and never refused. Holds no state beside the limiter but which
kinds of descriptors were without a rule.
"""

from __future__ import annotations

import logging

from enforcer.envoy.answers import NOT_CHECKED, OK, OVER_LIMIT, add_headers, fill_status, shown
from enforcer.envoy.mapping import Charged, Mapper
from enforcer.envoy.requests import Called, read_call
from enforcer.envoy.stubs import METHOD, SERVICE, RateLimitResponse, grpc
from enforcer.errors import EnforcerError, InvalidField
from enforcer.limiting.limiter import Limiter
from enforcer.metrics.checks import measured_by, unmeasured
from enforcer.metrics.metrics import Metrics, NullMetrics
from enforcer.policies.model import Policy, is_route
from enforcer.types import Verdict

log = logging.getLogger("enforcer.envoy")

#: Kinds of unmatched descriptors that are remembered, so that each is logged once.
_MOST_KINDS = 1_000


class RateLimitService:
    """Envoy's rate-limit service in front of one limiter."""

    def __init__(self, limiter: Limiter, metrics: Metrics | None = None) -> None:
        """Serve `limiter`; `metrics` is told how long checks take, and of descriptors that no rule is for."""
        self._limiter = limiter
        self._metrics = metrics if metrics is not None else NullMetrics()
        self._checked = unmeasured if metrics is None else measured_by(metrics)
        self._kinds: set[tuple[str, ...]] = set()
        self._use(limiter.policy)

    def handler(self) -> grpc.GenericRpcHandler:
        """What a `grpc.aio.server` is given. Messages stay bytes: a malformed one gets a status that says why."""
        method: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(self.should_rate_limit)
        return grpc.method_handlers_generic_handler(SERVICE, {METHOD: method})

    async def should_rate_limit(self, message: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        """Answer one call: INVALID_ARGUMENT for a malformed one, UNAVAILABLE once the limiter is closed."""
        try:
            return await self.answer(message)
        except InvalidField as fault:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(fault))
        except EnforcerError as fault:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(fault))

    async def answer(self, message: bytes) -> bytes:
        """The encoded RateLimitResponse to an encoded RateLimitRequest.

        Raises:
            InvalidField: the request is malformed; nothing was charged.
            EnforcerError: the limiter is closed.
        """
        limiter = self._limiter
        if limiter.policy is not self._policy:
            self._use(limiter.policy)
        called = read_call(message, self._mapper)
        if self._mapper.refuses_unmatched and None in called.charged:
            verdicts: list[Verdict] = []
        else:
            verdicts = await self._check(called.charged)
        return self._response(called, verdicts)

    async def _check(self, charged: list[Charged | None]) -> list[Verdict]:
        """Verdicts in order, up to the first refusal; what was admitted before one is given back."""
        limiter = self._limiter
        verdicts: list[Verdict] = []
        try:
            for who in charged:
                if who is not None and not who.in_shadow:
                    verdicts.append(await self._checked(limiter.acheck(who.caller, who.scope, who.cost)))
                    if not verdicts[-1].allowed:
                        break
            else:
                # Last: a request that is refused is not there for the limits that are tried out.
                for who in charged:
                    if who is not None and who.in_shadow:
                        limiter.check_in_shadow(who.caller, who.scope, who.cost)
                return verdicts
        except BaseException:
            # Also a call that Envoy has given up: its request is not served on our word, so it must cost nothing.
            self._refund(verdicts)
            raise
        self._refund(verdicts[:-1])
        return verdicts

    def _refund(self, verdicts: list[Verdict]) -> None:
        for verdict in verdicts:
            self._limiter.refund(verdict)

    def _response(self, called: Called, verdicts: list[Verdict]) -> bytes:
        response = RateLimitResponse()
        refuses_unmatched = self._mapper.refuses_unmatched
        over = bool(verdicts) and not verdicts[-1].allowed
        left = iter(verdicts)
        for who, keys in zip(called.charged, called.keys, strict=True):
            status = response.statuses.add()
            if who is None:
                self._note_unmatched(called.domain, keys)
                status.code = OVER_LIMIT if refuses_unmatched else OK
                over = over or refuses_unmatched
                continue
            if who.in_shadow:
                status.code = OK
                continue
            verdict = next(left, None)
            if verdict is None:
                status.code = NOT_CHECKED
            else:
                fill_status(status, self._limiter, verdict)
        if verdicts:
            add_headers(response, self._limiter, shown(verdicts, self._limiter))
        response.overall_code = OVER_LIMIT if over else OK
        encoded: bytes = response.SerializeToString()
        return encoded

    def _use(self, policy: Policy) -> None:
        self._policy = policy
        self._mapper = Mapper(
            policy.envoy,
            anonymous=policy.anonymous.caller,
            routes=[scope for scope in policy.scopes if is_route(scope)],
        )
        self._kinds.clear()

    def _note_unmatched(self, domain: str, keys: tuple[str, ...]) -> None:
        known = domain if self._mapper.knows(domain) else "(unknown)"
        self._metrics.add("tallygate_envoy_unmatched_total", 1, known)
        kind = (domain, *keys)
        if kind in self._kinds or len(self._kinds) >= _MOST_KINDS:
            return
        self._kinds.add(kind)
        log.warning(
            "no rule of the policy's section envoy is for descriptors of domain %r with keys %s: they are %s",
            domain,
            ", ".join(map(repr, keys)),
            "refused" if self._mapper.refuses_unmatched else "allowed",
            extra={"action": "envoy_unmatched"},
        )
