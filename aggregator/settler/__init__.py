"""The settler: totals of closed minutes, recounted from the exact record whenever it has changed."""
