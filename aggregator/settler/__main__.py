"""``python -m aggregator.settler``: runs the settler and ends with its exit code."""

from __future__ import annotations

import sys

from aggregator.settler.process import main

if __name__ == "__main__":
    sys.exit(main())
