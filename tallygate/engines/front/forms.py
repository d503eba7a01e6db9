"""Requests as multipart forms: how clients send long statements and long parameters. Files are refused."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request

from tallygate.engines.front.errors import Code, refusal


def is_form(request: Request) -> bool:
    """Whether the body is a multipart form; an urlencoded one is a plain statement, as ``curl -d`` sends it."""
    return request.headers.get("content-type", "").lower().startswith("multipart/form-data")


async def read_form(request: Request, limit_bytes: int) -> dict[str, bytes]:
    """The form's fields.

    Raises:
        FrontError: not a form, too large, or with a file (external data).
    """
    try:
        form = await request.form(max_fields=10_000, max_part_size=limit_bytes)
    except HTTPException as error:
        raise refusal(Code.BAD_ARGUMENTS, f"The form cannot be read: {error.detail}.") from error
    fields: dict[str, bytes] = {}
    for name, value in form.multi_items():
        if not isinstance(value, str):
            raise refusal(Code.NOT_IMPLEMENTED, f"External data ({name}) is not supported.")
        fields[name] = value.encode()
    return fields
