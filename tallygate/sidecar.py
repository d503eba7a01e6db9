"""``tallygate sidecar``: the enforcer's HTTP service, with its record in Kafka where that is asked for.

The enforcer knows no log: this is where the two meet.
"""

from __future__ import annotations

import sys
from functools import partial

from enforcer.config import EnforcerConfig
from enforcer.errors import ConfigError
from enforcer.sidecar.config import SidecarConfig
from enforcer.sidecar.serve import serve
from tallygate.config import current_environ, read_all


def run(*, listen: str | None, workers: int | None, kafka: bool) -> int:
    """Serve until SIGTERM or SIGINT; `kafka`, or TALLYGATE_KAFKA in the environment, has decisions recorded.

    Returns:
        As `enforcer.sidecar.serve.serve`.
    """
    if not kafka and not current_environ().get("TALLYGATE_KAFKA"):
        return serve(listen=listen, workers=workers)
    # A sidecar that records nothing needs no Kafka client.
    from stream import StreamConfig  # noqa: PLC0415
    from tallygate.recording import watched_kafka_sink  # noqa: PLC0415

    try:
        settings = partial(SidecarConfig.from_env, listen=listen, workers=workers)
        read_all(settings, EnforcerConfig.from_env, StreamConfig.from_env)
    except ConfigError as fault:
        sys.stderr.write(f"sidecar: {fault}\n")
        return 2
    return serve(listen=listen, workers=workers, sink=watched_kafka_sink)
