"""The form of events on the wire, and their envelope."""

from __future__ import annotations

from typing import Annotated

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
        validate_by_alias=True,
        validate_by_name=True,
        serialize_by_alias=True,
    )


class Envelope(Wire):
    """What every event has: its number in the journal, and whose it is. `at` is RFC 3339 in UTC."""

    seq: int
    query_id: str
    thread_id: str
    work_id: str | None
    parent_work_id: str | None
    agent: str | None
    at: Timestamp
