"""From the log to ClickHouse: the exact record and the live totals."""
