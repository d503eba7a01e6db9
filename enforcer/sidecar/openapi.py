"""The description of the sidecar's interface, OpenAPI 3.1, made of the models that it reads and writes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from enforcer.sidecar.models import BatchAnswer, BatchRequest, CheckAnswer, CheckRequest, Health, Problem, Readiness

_MODELS: tuple[type[msgspec.Struct], ...] = (
    CheckRequest,
    BatchRequest,
    CheckAnswer,
    BatchAnswer,
    Health,
    Readiness,
    Problem,
)
PROBLEM = "application/problem+json"


@lru_cache(maxsize=1)
def openapi() -> dict[str, Any]:
    """The whole document."""
    refs, components = msgspec.json.schema_components(_MODELS, ref_template="#/components/schemas/{name}")
    of: dict[Any, dict[str, Any]] = dict(zip(_MODELS, refs, strict=True))
    faults = _faults(of[Problem])
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

    def get(summary: str, gives: type[msgspec.Struct]) -> dict[str, Any]:
        return {"get": {"summary": summary, "responses": {"200": _content(summary, of[gives])}}}

    return {
        "openapi": "3.1.0",
        "info": {"title": "Tallygate sidecar", "version": "1"},
        "paths": {
            "/check": post("Decide about one request", CheckRequest, CheckAnswer),
            "/check/batch": post("Decide about several requests", BatchRequest, BatchAnswer),
            "/auth": {"get": _auth(authorised)},
            "/healthz": get("Whether the process is alive", Health),
            "/readyz": get("Whether it decides with its owners, or is degraded", Readiness),
            "/metrics": {"get": _metrics(of[Problem])},
        },
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _faults(problem: dict[str, Any]) -> dict[str, Any]:
    texts = {
        400: "Not a request of this form",
        401: "The token is missing",
        413: "Too large",
        503: "The sidecar is ending, or, without a body, has as many connections as it may",
    }
    return {str(status): _content(text, problem, PROBLEM) for status, text in texts.items()}


def _content(text: str, schema: dict[str, Any], kind: str = "application/json") -> dict[str, Any]:
    return {"description": text, "content": {kind: {"schema": schema}}}


def _metrics(problem: dict[str, Any]) -> dict[str, Any]:
    return {
        "summary": "What this process measures of itself, for Prometheus",
        "responses": {
            "200": _content("Metrics", {"type": "string"}, "text/plain"),
            "404": _content("There are several workers, and this is no worker's own port", problem, PROBLEM),
        },
    }


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
