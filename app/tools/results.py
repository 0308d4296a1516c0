"""The result of a tool call: an answer, or an error that says what is known. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, assert_never


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a call that succeeded. `value` is JSON-able; a model reads a str as it is."""

    value: Any = None
    artifacts: tuple[dict[str, Any], ...] = ()
    """What the agent that was called published, in short."""
    text: bytes | None = field(default=None, compare=False)
    """The value as JSON, if it is large and available."""
    record: dict[str, Any] | None = None
    """What the work record and the events contain instead of the value, if they must not contain it."""
    edited_args: dict[str, Any] | None = None
    """The arguments of the call, if an approver changed them."""


@dataclass(frozen=True, slots=True)
class ToolError:
    """The error of a call without an answer. `failed`: the call ended with this error. `unknown`: it may have taken
    effect, and the message may say why nobody knows. `withdrawn`: no process claimed it in time, so it was not made.
    """

    message: str
    code: str = "tool_error"
    status: Literal["failed", "unknown", "withdrawn"] = "failed"
    had_no_effect: bool = False
    """The error says that this attempt did nothing. It says nothing of an attempt before it."""
    edited_args: dict[str, Any] | None = None
    """The arguments of the call, if an approver changed them."""

    @classmethod
    def unknown(cls, message: str) -> ToolError:
        return cls(message, "outcome_unknown", "unknown")

    @classmethod
    def withdrawn(cls) -> ToolError:
        return cls("", "not_served", "withdrawn")


ToolResult = Answer | ToolError


def explain_error(error: ToolError, tool: str, not_served: str) -> ToolError:
    """Return the error of a dispatched call as a model reads it. `not_served` is the message for a call that
    no process claimed."""
    match error.status:
        case "failed":
            return error
        case "unknown":
            why = error.message or "the process that had taken the call did not answer in time."
            return replace(
                error, message=f"It is unknown whether {tool} ran: {why} Check before you repeat it."
            )
        case "withdrawn":
            return replace(error, message=not_served)
        case _:
            assert_never(error.status)
