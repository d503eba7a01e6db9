"""The live totals: a Faust worker, a process of its own: ``python -m aggregator.worker``."""
