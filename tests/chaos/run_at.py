"""Runs a module as ``python -m MODULE`` would, with the fault of the environment armed: see `tests.chaos.points`."""

from __future__ import annotations

import os
import runpy
import sys

from tests.chaos.points import arm

if __name__ == "__main__":
    module = sys.argv[1]
    sys.argv = sys.argv[1:]
    arm(os.environ)
    runpy.run_module(module, run_name="__main__", alter_sys=True)
