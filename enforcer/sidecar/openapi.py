"""The description of the sidecar's interface, OpenAPI 3.1, made of the models that it reads and writes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from enforcer.sidecar.models import BatchAnswer, BatchRequest, CheckAnswer, CheckRequest, Health, Problem

_MODELS: tuple[type[msgspec.Struct], ...] = (CheckRequest, BatchRequest, CheckAnswer, BatchAnswer, Health, Problem)


@lru_cache(maxsize=1)
def openapi() -> dict[str, Any]:
    """The whole document."""
    refs, components = msgspec.json.schema_components(_MODELS, ref_template="#/components/schemas/{name}")
    of: dict[Any, dict[str, Any]] = dict(zip(_MODELS, refs, strict=True))
    faults = {
        str(status): _content(text, of[Problem], "application/problem+json")
        for status, text in ((400, "Not a request of this form"), (401, "The token is missing"), (413, "Too large"))
    }
    authorised: list[dict[str, Any]] = [{}, {"token": []}]

    def post(summary: str, takes: type[msgspec.Struct], gives: type[msgspec.Struct]) -> dict[str, Any]:
        return {
            "post": {
                "summary": summary,
                "security": authorised,
                "requestBody": {"required": True, "content": {"application/json": {"schema": of[takes]}}},
                "responses": {"200": _content("Decided", of[gives]), **faults},
            }
        }

    def get(summary: str) -> dict[str, Any]:
        return {"get": {"summary": summary, "responses": {"200": _content(summary, of[Health])}}}

    return {
        "openapi": "3.1.0",
        "info": {"title": "Tallygate sidecar", "version": "1"},
        "paths": {
            "/check": post("Decide about one request", CheckRequest, CheckAnswer),
            "/check/batch": post("Decide about several requests", BatchRequest, BatchAnswer),
            "/auth": {"get": _auth(authorised)},
            "/healthz": get("Whether the process is alive"),
            "/readyz": get("Whether it decides with the owner, or is degraded"),
        },
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _content(text: str, schema: dict[str, Any], kind: str = "application/json") -> dict[str, Any]:
    return {"description": text, "content": {kind: {"schema": schema}}}


def _auth(authorised: list[dict[str, Any]]) -> dict[str, Any]:
    names = ("x-account", "x-scope", "x-original-method", "x-original-uri")
    return {
        "summary": "Decide for nginx's auth_request",
        "security": authorised,
        "parameters": [{"name": name, "in": "header", "schema": {"type": "string"}} for name in names],
        "responses": {
            "204": {"description": "Let through"},
            "401": {"description": "The token is missing"},
            "403": {"description": "Refused; x-tallygate-status has the status for the client"},
        },
    }
