"""ClickHouse's HTTP interface in front of the embedded engine, as a process of its own.

Owns the engine's folder while it runs. Not a server for other machines: no TLS, no native protocol, no sessions.
"""
