"""The builtin toolkit `catalog` as data: finding data, and asking it."""

from __future__ import annotations

from typing import Any, Final

from plangate.spec.builtin import BuiltinTool, text, tool_input


def _text(description: str, most: int) -> dict[str, Any]:
    return {**text(description), "maxLength": most}


_SOURCE: Final = _text("The name of a data source.", 63)

EXECUTE_QUERY: Final = BuiltinTool(
    "execute_query",
    "Runs one SELECT on a data source and returns its complete result if that is small, else a reference with a "
    "glimpse. It is the last step: search the catalog first, read entries, fields and relations, and sample only if "
    "needed. Let the database filter, join and aggregate, so that one query answers the question.",
    tool_input(
        ("source", "sql"),
        source=_SOURCE,
        sql=_text(
            "One SELECT, or WITH ... SELECT, in the source's dialect. Write values as $1, $2 and so on.",
            20_000,
        ),
        params={
            "type": "array",
            "items": {"type": ["string", "number", "boolean", "null"]},
            "maxItems": 100,
            "description": "The values of $1, $2 and so on, in order.",
        },
        purpose=_text("What the result is for, in a few words.", 500),
    ),
    "catalog",
)

CATALOG: Final = (EXECUTE_QUERY,)
