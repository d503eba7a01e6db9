"""What it costs to replay the exact bucket over the record: ``python -m benchmarks.fairness [--json FILE]``."""
