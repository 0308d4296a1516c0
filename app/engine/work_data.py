"""The part of a work record that events carry. Pure."""

from __future__ import annotations

import orjson

from app.base.ids import age_ms
from app.base.responses import to_wire
from app.events import Usage
from app.journal.models import Work


def work_data(work: Work) -> dict[str, object]:
    """Return the part of a work record that `work-start` and `work-end` events carry."""
    data: dict[str, object] = {
        "id": work.id,
        "parentId": work.parent_id,
        "kind": work.kind,
        "name": work.name,
        "status": work.status,
    }
    if work.over:
        data["durationMs"] = age_ms(work.id)
    if work.kind == "model_call" and work.status != "running":
        data["model"] = work.model
        data["usage"] = to_wire(Usage, work)
        if work.cost_usd is not None:
            data["costUsd"] = work.cost_usd
        data["attempts"] = work.attempts
    if work.error is not None:
        data["error"] = orjson.loads(work.error)
    return data


def readable_arguments(arguments: str) -> object:
    """Return the arguments as JSON if they are JSON, else as text. For people to read, never to act on."""
    try:
        return orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        return arguments
