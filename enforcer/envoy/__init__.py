"""Envoy's rate-limit service: its descriptors are checked as requests of callers. Loads nothing of gRPC by itself."""
