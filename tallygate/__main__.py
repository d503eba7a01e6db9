"""`python -m tallygate` is the command `tallygate`."""

from __future__ import annotations

import sys

from tallygate.cli import main

if __name__ == "__main__":
    sys.exit(main())
