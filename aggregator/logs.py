"""How the aggregator's processes log: one line an event, on stderr, without the noise of the clients beneath.

Never logs anything itself.
"""

from __future__ import annotations

import logging
import sys

#: Report every retry of every request; our own lines say once that a service is away.
_NOISY = ("clickhouse_connect", "urllib3")


def configure(process: str) -> logging.Logger:
    """Set logging up for a process and return its own logger.

    Args:
        process: ``recorder`` or ``worker``; stands in every line.
    """
    logging.basicConfig(
        level=logging.INFO, format=f"%(asctime)s %(levelname)s {process}: %(message)s", stream=sys.stderr
    )
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return logging.getLogger(f"tallygate.{process}")
