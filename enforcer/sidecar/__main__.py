"""``python -m enforcer.sidecar``: the sidecar without a record. ``tallygate sidecar`` adds the one in Kafka."""

from __future__ import annotations

import sys

from enforcer.sidecar.serve import main

if __name__ == "__main__":
    sys.exit(main())
