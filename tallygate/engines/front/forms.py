"""Requests as multipart forms: how clients send long statements and long parameters. Files are refused."""

from __future__ import annotations

from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from tallygate.engines.front.body import pieces
from tallygate.engines.front.errors import Code, refusal

_MOST_FIELDS = 10_000


def is_form(request: Request) -> bool:
    """Whether the body is a multipart form; an urlencoded one is a plain statement, as ``curl -d`` sends it."""
    return request.headers.get("content-type", "").lower().startswith("multipart/form-data")


async def read_form(request: Request, limit_bytes: int) -> dict[str, bytes]:
    """The form's fields.

    Raises:
        FrontError: not a form, too large as a whole, or with a file (external data).
    """
    parser = MultiPartParser(
        request.headers, pieces(request, limit_bytes), max_fields=_MOST_FIELDS, max_part_size=limit_bytes
    )
    try:
        form = await parser.parse()
    except (MultiPartException, KeyError) as error:
        # KeyError: there is no boundary, or a part without a name.
        raise refusal(Code.BAD_ARGUMENTS, f"The form cannot be read: {error}.") from error
    fields: dict[str, bytes] = {}
    for name, value in form.multi_items():
        if not isinstance(value, str):
            raise refusal(Code.NOT_IMPLEMENTED, f"External data ({name}) is not supported.")
        fields[name] = value.encode()
    return fields
