"""The screen of this example."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from examples.common.render import Event, Screen
from examples.questions.system import ANALYST


class QuestionsScreen(Screen):
    """Prints what the analyst finds, and the glimpse of the answer."""

    styles: ClassVar[Mapping[str, str]] = {ANALYST: "cyan"}
    values: ClassVar[str] = "the rows"

    def __init__(self, *args: Any, **parts: Any) -> None:
        super().__init__(*args, **parts)
        self.answer: Mapping[str, Any] | None = None

    def glimpse_text(self, reference: Mapping[str, Any]) -> str:
        glimpse = reference["glimpse"]
        columns = ", ".join(column["name"] for column in glimpse["columns"])
        ranges = "; ".join(
            f"{name} from {held['min']:,} to {held['max']:,}" for name, held in glimpse["ranges"].items()
        )
        return f"{glimpse['rowCount']} rows of {columns}. {ranges}."

    def result_text(self, event: Event) -> str | None:
        result = event["result"]
        if event["toolName"] == "list_schema_fields":
            rows = result.get("rowEstimate", 0)
            return f"{result['table']['name']}: {rows:,} rows, {len(result['fields'])} columns"
        return None

    def show(self, event: Event) -> None:
        super().show(event)
        if event["type"] != "tool-invocation" or event["state"] != "result":
            return
        result = event["result"]
        if event["toolName"] == "search_catalog":
            self.line(None, f"→ found {', '.join(entry['id'] for entry in result)}")
        if event["toolName"] == "execute_query" and "glimpse" in result:
            self.answer = result
