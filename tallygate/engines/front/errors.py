"""Refusals as ClickHouse words them: a code, a text, an HTTP status. Never hides what the engine said."""

from __future__ import annotations

import re
from enum import IntEnum

_CODE = re.compile(r"Code: (\d+)\.")


class Code(IntEnum):
    """The engine's error codes that this front gives by itself."""

    BAD_ARGUMENTS = 36
    NOT_IMPLEMENTED = 48
    SYNTAX_ERROR = 62
    READONLY = 164
    TOO_MANY_SIMULTANEOUS_QUERIES = 202
    RECEIVED_EMPTY_DATA = 210
    NOT_ENOUGH_SPACE = 243
    SUPPORT_IS_DISABLED = 344
    TOO_MANY_ROWS_OR_BYTES = 396
    ACCESS_DENIED = 497
    AUTHENTICATION_FAILED = 516
    UNKNOWN_EXCEPTION = 1002


_NOT_FOUND = frozenset({46, 47, 60, 73, 81, 115})
_BAD_REQUEST = frozenset({6, 16, 26, 27, 36, 38, 41, 43, 53, 62, 70, 72, 117, 456, 457})
_STATUS = {
    Code.AUTHENTICATION_FAILED: 403,
    Code.ACCESS_DENIED: 403,
    Code.NOT_IMPLEMENTED: 501,
    Code.SUPPORT_IS_DISABLED: 501,
    Code.TOO_MANY_ROWS_OR_BYTES: 413,
}


class FrontError(Exception):
    """A request that fails; ``text`` goes to the client as it is."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text

    @property
    def status(self) -> int:
        """The HTTP status that a ClickHouse server would answer with. Never one that clients retry by themselves."""
        if self.code in _NOT_FOUND:
            return 404
        if self.code in _BAD_REQUEST:
            return 400
        return _STATUS.get(Code(self.code), 500) if self.code in Code._value2member_map_ else 500


def refusal(code: Code, message: str) -> FrontError:
    """A refusal of the front's own, in the engine's wording."""
    return FrontError(code, f"Code: {int(code)}. DB::Exception: {message} ({code.name})")


def from_engine(error: RuntimeError) -> FrontError:
    """The engine's own error: it says its code in its text only."""
    text = str(error)
    start = text.find("Code: ")
    text = text[start:].strip() if start >= 0 else text.strip()
    match = _CODE.match(text)
    if match is None:
        return refusal(Code.UNKNOWN_EXCEPTION, text or "the engine gave no reason")
    return FrontError(int(match.group(1)), text)
