"""The catalogue as a whole: any event of it, told apart by `type`, and how one is read."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final, get_args

from pydantic import TypeAdapter

from plangate.events.base import Envelope, JsonObject
from plangate.events.kinds import Event


class UnknownEvent(Envelope):
    """An event of a type that this version does not know; `fields` is the whole event as it came."""

    seq: int = 0
    query_id: str = ""
    thread_id: str = ""
    work_id: str | None = None
    parent_work_id: str | None = None
    agent: str | None = None
    at: str = ""
    type: str
    fields: JsonObject


def _by_type() -> dict[str, type[Envelope]]:
    union, _ = get_args(Event.__value__)
    return {get_args(model.model_fields["type"].annotation)[0]: model for model in get_args(union)}


EVENT_MODELS: Final = MappingProxyType(_by_type())
"""The model of each type, in the catalogue's order."""

EVENT_TYPES: Final[tuple[str, ...]] = tuple(EVENT_MODELS)
TERMINAL_TYPES: Final[frozenset[str]] = frozenset({"finish", "error"})


@cache
def event_adapter() -> TypeAdapter[Event]:
    """Return an adapter that validates and serializes any event of the catalogue, as in the OpenAPI document.

    Example:
        >>> sorted(event_adapter().json_schema()["discriminator"]["mapping"])[:2]
        ['action-status-change', 'approval-decision']
    """
    return TypeAdapter(Event)


def parse_event(data: Mapping[str, Any]) -> Event | UnknownEvent:
    """Return the event that a JSON object from a journal or a stream is.

    Args:
        data: The envelope with the fields of its type. Fields that are not in the catalogue are ignored.

    Raises:
        pydantic.ValidationError: (a ValueError) for a known type with a field missing or of another type, and
            for an event without a type.

    Example:
        >>> envelope = {"seq": 3, "queryId": "qry_1", "threadId": "thr_1", "workId": "wrk_2",
        ...             "parentWorkId": "wrk_1", "agent": "helper", "at": "2026-01-02T03:04:05.678Z"}
        >>> parse_event({**envelope, "type": "text", "text": "Hi", "turn": 1}).text
        'Hi'
        >>> parse_event({**envelope, "type": "not-yet", "data": 1}).fields["data"]
        1
    """
    kind = data.get("type")
    if isinstance(kind, str) and kind not in EVENT_MODELS:
        known = {key: value for key, value in data.items() if key != "fields"}
        return UnknownEvent.model_validate({**known, "fields": dict(data)})
    return event_adapter().validate_python(data)
