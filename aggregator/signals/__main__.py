"""``python -m aggregator.signals``."""

from __future__ import annotations

import sys

from aggregator.signals.process import main

sys.exit(main())
