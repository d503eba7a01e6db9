"""What can go wrong with an engine, split by what the reader can do about it.

EngineError
├── PortTaken       choose another port, or end the process that holds it
├── EngineMissing   install what the message names
└── EngineFailed    read the log's tail in the message
"""

from __future__ import annotations


class EngineError(Exception):
    """An engine cannot be had; the message says why, and what to do."""


class PortTaken(EngineError):
    """The address is in use by another process."""


class EngineMissing(EngineError):
    """The program, or something that it needs, is not installed."""


class EngineFailed(EngineError):
    """The process ended, or was not ready in time."""
