"""``python -m aggregator.recorder``."""

from __future__ import annotations

import sys

from aggregator.recorder.process import main

sys.exit(main())
