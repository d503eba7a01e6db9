"""``tallygate sidecar``: the enforcer's HTTP service, with its record in Kafka where that is asked for.

The enforcer knows no log: this is where the two meet.
"""

from __future__ import annotations

from enforcer.sidecar.serve import serve
from tallygate.config import current_environ


def run(*, listen: str | None, workers: int | None, kafka: bool) -> int:
    """Serve until SIGTERM or SIGINT; `kafka`, or TALLYGATE_KAFKA in the environment, has decisions recorded.

    Returns:
        0 after an orderly end, 1 if it cannot listen, 2 if a setting or the policy is wrong.
    """
    if not kafka and not current_environ().get("TALLYGATE_KAFKA"):
        return serve(listen=listen, workers=workers)
    from stream import kafka_sink  # noqa: PLC0415  a sidecar that records nothing needs no Kafka client

    return serve(listen=listen, workers=workers, sink=kafka_sink)
