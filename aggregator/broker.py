"""What both readers of the log say of a broker that fails them. Never talks to one."""

from __future__ import annotations


class LogUnavailable(Exception):
    """Kafka did not answer in time, or refuses for good; names the address and its setting."""
