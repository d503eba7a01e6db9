"""The limiter as an HTTP service on the same host, for gateways that are not written in Python. Never leaves it."""
