"""How a turn ends, which is the same for all vendors that stream numbered blocks. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from app.llm.messages import StopReason, Text, Thinking, ToolUse, TurnDone, Usage
from app.llm.provider import BrokenTurn

MAX_REASON_CHARS = 100


class PartialBlock(Protocol):
    """A block that may still grow until it is closed."""

    closed: bool


P = TypeVar("P", bound=PartialBlock)


def stop_reason_of(reasons: Mapping[str, StopReason], reason: str, usage: Usage) -> StopReason:
    """Return the stop reason for a vendor's word for it. Raise BrokenTurn for an unknown one."""
    stop_reason = reasons.get(reason)
    if stop_reason is None:
        raise BrokenTurn(
            f"The provider ended the turn for an unknown reason: {reason[:MAX_REASON_CHARS]}", usage=usage
        )
    return stop_reason


def ended_itself(stop_reason: StopReason) -> bool:
    """Return whether the model ended its turn, which was not truncated or refused."""
    return stop_reason in ("end_turn", "tool_use")


def turn_of_blocks(
    parts: Mapping[int, P],
    render: Callable[[P, bool], Text | Thinking | ToolUse | None],
    stop_reason: StopReason,
    usage: Usage,
    model: str,
) -> TurnDone:
    """Return the turn with these blocks, by their numbers.

    `render` returns a block, or None for an empty one; its second argument says whether the model ended the turn
    itself. Raise BrokenTurn if it did so in the middle of a block.
    """
    is_whole = ended_itself(stop_reason)
    if is_whole and not all(part.closed for part in parts.values()):
        raise BrokenTurn("The provider ended the turn in the middle of a block.", usage=usage)
    rendered = (render(part, is_whole) for _, part in sorted(parts.items()))
    blocks = tuple(block for block in rendered if block is not None)
    if is_whole:
        stop_reason = "tool_use" if any(isinstance(block, ToolUse) for block in blocks) else "end_turn"
    return TurnDone(blocks, stop_reason, usage, model)
