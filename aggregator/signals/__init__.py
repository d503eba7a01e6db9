"""The second stage of the live figures: a Faust worker, a process of its own: ``python -m aggregator.signals``."""
