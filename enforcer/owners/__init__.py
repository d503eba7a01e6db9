"""Owners of buckets: the port, one in memory, one on Redis or Valkey with its script and its keys."""
