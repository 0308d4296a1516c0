"""What an execution answers: to the model that asked for it, and to everybody who follows the query."""

from __future__ import annotations

from typing import Any

import orjson

from app.base.json import strict_json
from app.documents.glimpses import glimpse_value, truncate_text

MOST_ENTITIES = 2**63 - 1  # what JSON holds here; there are no more
SUMMARY_CHARS = 4_000
ERROR_CHARS = 1_000


def execution_summary(rows: list[Any]) -> dict[str, Any]:
    """Return the result of executePlan: the actions, and how many entities they affected, in words. Rows of
    one dispatch share a result, which counts once. A failure whose error went to a path is handled: the
    plan may still be executed. The summary goes to a model and to everybody who follows the query, so
    long texts are truncated; the rows have them in full."""
    results = {r["work_id"]: orjson.loads(r["result"]) for r in rows if r["result"] is not None}
    errors = {r["index"]: orjson.loads(r["error"]) for r in rows if r["error"] is not None}
    handled = {n for n, error in errors.items() if error.get("writtenTo")}
    failed = [r for r in rows if r["status"] not in ("succeeded", "skipped") and r["index"] not in handled]
    affected = min(sum(r.get("entitiesAffected", 0) for r in results.values()), MOST_ENTITIES)
    words = [r["summary"] for r in results.values() if r.get("summary")]
    done = sum(r["status"] == "succeeded" for r in rows)
    return {
        "status": "failed" if failed else "executed",
        "actions": [
            {
                "index": r["index"],
                "kind": r["kind"],
                "status": r["status"],
                **({"error": _shorten_error(errors[r["index"]])} if r["index"] in errors else {}),
            }
            for r in rows
        ],
        "entitiesAffected": affected,
        "summary": truncate_text(" ".join(words), SUMMARY_CHARS)
        or f"{done} of {len(rows)} actions took effect.",
    }


def _shorten_error(error: dict[str, Any]) -> dict[str, Any]:
    """Truncate an error. Its details come from the person who settled the action and may be any JSON."""
    if "message" in error:
        return {**error, "message": truncate_text(error["message"], ERROR_CHARS)}
    long = len(strict_json.dumps(error["details"])) > ERROR_CHARS
    return {**error, "details": glimpse_value(error["details"])} if long else error
