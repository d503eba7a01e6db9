"""Which modules in C this installation has; without one, the same is done in Python, to the last bit but slower.

``python -m tallygate.compiled`` says so, and ends with 1 if one is missing. Never compiles anything.
"""

from __future__ import annotations

import importlib
import sys
from typing import Final

#: Each compiled module, and what it does.
MODULES: Final = {
    "stream.contract._reading": "reading verdicts",
    "aggregator.core.live._tally": "counting live totals",
    "aggregator.core.fairness._replay": "replaying buckets",
}


def described() -> str:
    """What is compiled and what is not, one line each; an installation without a compiler lacks them all."""
    missing = missing_modules()
    lines = {
        "compiled": [does for name, does in MODULES.items() if name not in missing],
        "in Python, slower, as it was built without a C compiler": [MODULES[name] for name in missing],
    }
    return "".join(f"{kind}: {', '.join(does)}\n" for kind, does in lines.items() if does)


def missing_modules() -> list[str]:
    """The modules of `MODULES` that this Python cannot load."""
    return [name for name in MODULES if not _loads(name)]


def _loads(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def main() -> int:
    """Print what is compiled; 0 if everything is."""
    sys.stdout.write(described())
    return 1 if missing_modules() else 0


if __name__ == "__main__":
    sys.exit(main())
