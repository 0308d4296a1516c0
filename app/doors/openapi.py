"""The OpenAPI document: what FastAPI finds, and what every operation may answer."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "instance"],
    "properties": {
        "type": {"type": "string", "description": "A stable slug."},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What happened and what to do."},
        "instance": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["pointer", "message"],
                "properties": {"pointer": {"type": "string"}, "message": {"type": "string"}},
            },
        },
    },
}


def install(api: FastAPI) -> None:
    def document() -> dict[str, Any]:
        if api.openapi_schema is None:
            api.openapi_schema = describe(api)
        return api.openapi_schema

    api.openapi = document  # type: ignore[method-assign]


def describe(api: FastAPI) -> dict[str, Any]:
    """The whole document. Problems of all kinds share one answer, `default`."""
    found: dict[str, Any] = get_openapi(title=api.title, version=api.version, routes=api.routes)
    schemas = found.setdefault("components", {}).setdefault("schemas", {})
    schemas.pop("HTTPValidationError", None)
    schemas.pop("ValidationError", None)
    schemas["Problem"] = PROBLEM
    for path in found["paths"].values():
        for operation in path.values():
            answers = operation["responses"]
            answers.pop("422", None)
            answers["default"] = {
                "description": "A problem (RFC 9457).",
                "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
            }
    return found
