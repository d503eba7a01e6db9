"""Builds a limiter from its configuration: the only place in the enforcer that creates clients.

Connects to nothing by itself; the limiter finds out in the background whether its owner is there.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from enforcer.clock import SystemClock
from enforcer.config import DEFAULT_POLICY_PATH, EnforcerConfig
from enforcer.errors import ConfigError
from enforcer.identity import CopyIdentity, Starts
from enforcer.limiting.limiter import Limiter
from enforcer.metrics.measured import MeasuredSink
from enforcer.metrics.measured_owners import MeasuredOwners
from enforcer.metrics.metrics import Metrics
from enforcer.metrics.watching import watch_limiter
from enforcer.owners.addresses import owners_from_url
from enforcer.owners.governed import GovernedOwners
from enforcer.owners.patience import Patience
from enforcer.owners.port import Owners
from enforcer.policies.addresses import is_address
from enforcer.policies.model import Policy
from enforcer.policies.sources import begin_with, judge_policy, source_of
from enforcer.policies.watching import PolicyWatcher
from enforcer.process import close_at_end
from enforcer.settings import LimiterSettings
from enforcer.sink import NullSink, Sink

log = logging.getLogger("enforcer")

_starts = Starts()


def judge_start(config: EnforcerConfig) -> Policy:
    """The policy that a gateway would begin with, before it serves; arguments and errors as of `build_limiter`."""
    _require_file(config)
    return judge_policy(config.policy_path)[0]


def build_limiter(
    config: EnforcerConfig | None = None,
    *,
    sink: Callable[[CopyIdentity], Sink] | None = None,
    metrics: Metrics | None = None,
    settings: LimiterSettings | None = None,
) -> Limiter:
    """The limiter of this process, which follows its policy. It is closed when the process ends, if not before.

    Call it in the process that serves, or give it to what does that: `PerProcess`, the middlewares, `limited`. Those
    that are given the limiter itself build its like in a fork, where it decides nothing.

    Args:
        config: where owner and policy are; None: from the environment.
        sink: makes the sink that records this copy's decisions, such as `stream.kafka_sink`; None: nothing records,
            and the log says so.
        metrics: what is to be told of owner, sink and limiter, such as a `CopyMetrics`; None: nothing is measured.
        settings: how the limiter behaves; None: the defaults, which fit a gateway.

    Raises:
        ConfigError: a setting or the owner's address is wrong, or there is no policy file.
        PolicyError: the policy has faults, or nobody answers where it is kept. An owner that is away is no error: the
            limiter starts degraded.
    """
    if config is not None and not isinstance(config, EnforcerConfig):
        # Its type alone: a text may be an address with a password.
        raise ConfigError(
            f"config is a {type(config).__name__}; allowed: an EnforcerConfig, or None for the environment"
        )
    again = partial(build_limiter, config, sink=sink, metrics=metrics, settings=settings)
    config = config or EnforcerConfig.from_env()
    _require_file(config)
    policy, digest = begin_with(config.policy_path)
    clock = SystemClock()
    identity = _starts.new_identity(config.copy_id, unix_ms=clock.unix_us() // 1_000, pid=os.getpid())
    patience = Patience(policy.timeouts.ask_ms / 1e3)
    placed = _owners(config, policy, patience)
    settings = settings or LimiterSettings()
    if sink is None:
        log.warning("decisions are not recorded: no sink was given", extra={"action": "not_recorded"})
    records: Sink = sink(identity) if sink else NullSink()
    if metrics is None:
        owners = GovernedOwners(placed, patience)
        limiter = Limiter(policy, owners, records, identity, settings=settings, clock=clock)
    else:
        owners = GovernedOwners(MeasuredOwners(placed, metrics, clock=clock), patience, placing=placed)
        limiter = Limiter(policy, owners, MeasuredSink(records, metrics), identity, settings=settings, clock=clock)
        watch_limiter(metrics, limiter)
    limiter.again = again
    watcher = PolicyWatcher(source_of(config.policy_path), limiter, digest=digest)
    limiter.at_close(watcher.stop)
    watcher.start()
    close_at_end(limiter)
    return limiter


def check_build(build: object) -> None:
    """Raise now what `build_limiter` would raise later of its settings, the owner's address and the policy file.

    Looks at `build_limiter` itself and at a `functools.partial` of it; what another callable does, only its call shows.
    Asks nobody, starts nothing and keeps nothing, so a server may fork afterwards. A policy in Redis is not fetched.

    Raises:
        ConfigError, PolicyError: as `build_limiter`.
    """
    given: EnforcerConfig | None = None
    if isinstance(build, partial) and build.func is build_limiter:
        given = build.args[0] if build.args else build.keywords.get("config")
    elif build is not build_limiter:
        return
    config = given or EnforcerConfig.from_env()
    if is_address(config.policy_path):
        return
    policy = judge_start(config)
    owners = _owners(config, policy, Patience(policy.timeouts.ask_ms / 1e3))
    for owner in owners.nodes.values():
        owner.close()
    owners.close()


def _require_file(config: EnforcerConfig) -> None:
    if not is_address(config.policy_path) and not Path(config.policy_path).exists():
        raise ConfigError(
            f"the policy file that TALLYGATE_POLICY names does not exist: {Path(config.policy_path).absolute()} "
            f"(when it is not set: {DEFAULT_POLICY_PATH} in the working directory)"
        )


def _owners(config: EnforcerConfig, policy: Policy, patience: Patience) -> Owners:
    try:
        return owners_from_url(config.owner_url, timeout_s=patience, placing=policy.owners)
    except ConfigError as fault:
        raise ConfigError(f"TALLYGATE_OWNER_URL: {fault}") from fault
