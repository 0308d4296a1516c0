"""What a call of a builtin tool gives: an answer, or an error that the model can act on. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model reads of a call. `value` is JSON-able; a str goes as it is."""

    value: Any
    artifacts: tuple[dict[str, Any], ...] = ()  # of an agent that was called: what it published, in short
    text: bytes | None = None  # the value as JSON, where it is large and at hand
    record: dict[str, Any] | None = None
    """What is kept of the answer in the work record and in events, if the value itself must not be there."""


@dataclass(frozen=True, slots=True)
class ToolError:
    """An error that the model can act on."""

    message: str
    code: str = "tool_error"


Outcome = Answer | ToolError
