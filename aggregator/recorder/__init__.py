"""The recorder: reads the log and writes the exact record. A process of its own: ``python -m aggregator.recorder``."""
