"""``python -m enforcer.policies check FILE...``."""

from __future__ import annotations

import sys

from enforcer.policies.check import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
