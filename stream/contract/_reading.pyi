"""The compiled half of `stream.contract.reading`, which says what these do."""

from typing import TypeVar

_T = TypeVar("_T")

def integers(objects: list[_T], member: object, /) -> bytes: ...
def distinct(objects: list[_T], member: object, /) -> tuple[list[object], bytes]: ...
