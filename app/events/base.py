"""The form of events on the wire, and their envelope."""

from __future__ import annotations

from typing import Annotated

from plangate.field_docs import describe_fields
from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic.alias_generators import to_camel

JsonObject = dict[str, JsonValue]
Timestamp = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
"""RFC 3339 in UTC with milliseconds, as it is on the wire."""


class Wire(BaseModel):
    """Frozen data in camelCase; snake_case is accepted, unknown fields are ignored."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        defer_build=True,
        validate_by_alias=True,
        validate_by_name=True,
        serialize_by_alias=True,
        json_schema_extra=describe_fields,
    )


class Envelope(Wire):
    """The fields of every event: its number in the journal and its position in the tree of work. `at` is RFC 3339 in
    UTC."""

    seq: int
    """Its number in the journal of the query, from 1."""
    query_id: str
    """The query whose journal it is in."""
    thread_id: str
    work_id: str | None
    """The unit of work that it tells of."""
    parent_work_id: str | None
    """The work record above; null at the root."""
    agent: str | None
    """The agent at work; empty for a plan that a host executes."""
    at: Timestamp
    """When it happened."""
