"""The base of request bodies. Services use the models too, and load no web framework for them. Pure."""

from __future__ import annotations

from typing import Any

from plangate.field_docs import describe_fields
from plangate.spec.base import WireModel, allow_nulls
from pydantic import BaseModel, ConfigDict


def _body_schema(schema: dict[str, Any], model: type[BaseModel]) -> None:
    describe_fields(schema, model)
    allow_nulls(schema)


class Body(WireModel):
    """A request body: camelCase on the wire, unknown fields rejected, nothing coerced, null is unset."""

    model_config = ConfigDict(validate_by_name=False, strict=True, json_schema_extra=_body_schema)
