"""``python -m aggregator.worker``."""

from __future__ import annotations

import sys

from aggregator.worker.process import main

sys.exit(main())
