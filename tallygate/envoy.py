"""The process of Envoy's rate-limit service: settings, limiter with its record, exit codes. Decides nothing itself."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Mapping
from functools import partial

from enforcer.config import EnforcerConfig
from enforcer.envoy.config import EnvoyConfig
from enforcer.envoy.server import serve
from enforcer.errors import ConfigError, PolicyError
from enforcer.limiting.limiter import Limiter
from enforcer.metrics.metrics import Metrics
from enforcer.wiring import build_limiter
from stream import StreamConfig
from tallygate.config import read_all
from tallygate.recording import watched_kafka_sink


def main(environ: Mapping[str, str] | None = None) -> int:
    """Run until SIGTERM or SIGINT: 0 then, 2 for wrong settings or a wrong policy."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s envoy: %(message)s", stream=sys.stderr)
    try:
        read_all(*(partial(kind.from_env, environ) for kind in (EnforcerConfig, EnvoyConfig, StreamConfig)))
        config, envoy = EnforcerConfig.from_env(environ), EnvoyConfig.from_env(environ)
        asyncio.run(serve(lambda metrics: _limiter(config, metrics), envoy))
    except (ConfigError, PolicyError) as fault:
        logging.getLogger("tallygate.envoy").error("%s", fault)  # noqa: TRY400  (the message is for the operator; a traceback would hide it)
        return 2
    return 0


def _limiter(config: EnforcerConfig, metrics: Metrics) -> Limiter:
    return build_limiter(config, sink=lambda identity: watched_kafka_sink(identity, metrics), metrics=metrics)
