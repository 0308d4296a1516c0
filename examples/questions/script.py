"""The prompt of a query: text for a model, or the script that replaces one."""

from __future__ import annotations

import json
from typing import Any, Final

from examples.questions.data import SOURCE

SQL: Final = (
    "SELECT dest, count(*) AS departures, round(avg(dep_delay), 2) AS mean_delay, max(dep_delay) AS worst_delay "
    "FROM flights WHERE dep_delay IS NOT NULL GROUP BY dest ORDER BY departures DESC, dest"
)


def in_words() -> str:
    """Return the question for an analyst with a model."""
    return (
        "For every destination: how many flights departed, how late were they on average, and how late was the "
        "latest one? Most departures first."
    )


def as_script() -> str:
    """Return the calls that answer the same question."""
    calls = [
        _call("search_catalog", query="departure delay of flights by destination", source=SOURCE, limit=5),
        _call("list_schema_fields", table="flights"),
        _call("execute_query", source=SOURCE, sql=SQL, purpose="delays by destination"),
    ]
    return json.dumps({"script": calls})


def _call(tool: str, **args: Any) -> dict[str, Any]:
    return {"tool": tool, "args": args}
