"""The summary of an execution: the result of executePlan and of the query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from app.base.json import strict_json
from app.documents.glimpses import glimpse_value, truncate_text
from app.plans.models import PlanAction

MAX_ENTITIES = 2**63 - 1  # of 64 bits
SUMMARY_CHARS = 4_000
ERROR_CHARS = 1_000


def execution_summary(actions: Sequence[PlanAction]) -> dict[str, Any]:
    """Return the result of executePlan: the actions, and how many entities they affected, in words. Rows of
    one dispatch share a result, which counts once. A failure whose error went to a path is handled: the
    plan may still be executed. The summary goes to a model and to everybody who follows the query, so
    long texts are truncated; the rows have them in full."""
    results = {action.work_id: orjson.loads(action.result) for action in actions if action.result is not None}
    errors = {action.index: orjson.loads(action.error) for action in actions if action.error is not None}
    handled = {index for index, error in errors.items() if error.get("writtenTo")}
    failed = [
        action
        for action in actions
        if action.status not in ("succeeded", "skipped") and action.index not in handled
    ]
    affected = min(sum(result.get("entitiesAffected", 0) for result in results.values()), MAX_ENTITIES)
    words = [result["summary"] for result in results.values() if result.get("summary")]
    succeeded = sum(action.status == "succeeded" for action in actions)
    return {
        "status": "failed" if failed else "executed",
        "actions": [
            {
                "index": action.index,
                "kind": action.kind,
                "status": action.status,
                **({"error": _shorten_error(errors[action.index])} if action.index in errors else {}),
            }
            for action in actions
        ],
        "entitiesAffected": affected,
        "summary": truncate_text(" ".join(words), SUMMARY_CHARS)
        or f"{succeeded} of {len(actions)} actions took effect.",
    }


def _shorten_error(error: dict[str, Any]) -> dict[str, Any]:
    """Truncate an error. Its details come from the person who settled the action and may be any JSON."""
    if "message" in error:
        return {**error, "message": truncate_text(error["message"], ERROR_CHARS)}
    long = len(strict_json.dumps(error["details"])) > ERROR_CHARS
    return {**error, "details": glimpse_value(error["details"])} if long else error
