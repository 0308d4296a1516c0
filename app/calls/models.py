"""A tool call of a model turn. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from app.llm.messages import ToolUse


@dataclass(frozen=True, slots=True)
class TurnCall:
    """A tool call of a turn. `answer` is the text that the model reads, None while it is open."""

    work_id: str
    use: ToolUse
    position: int
    answer: str | None = None
    is_error: bool = False
    on_record: str | None = None  # the record of the answer, if that is not the answer itself
