"""Assemble one turn from the events of Bedrock's ConverseStream. Pure: no SDK, no I/O.

The event of a frame is in its header `:event-type`, and its payload is JSON. `metadata`, with the usage, is the last.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import BaseModel, Field

from app.llm.messages import (
    StopReason,
    StreamPart,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolUse,
    TurnDone,
    Usage,
)
from app.llm.provider import BrokenTurn, ContextOverflow, RequestRejected
from app.llm.turns import stop_reason_of, turn_of_blocks

SIGNATURE: Final = "converseSignature"
REDACTED: Final = "converseRedacted"
"""What `Thinking.opaque` keeps of reasoning, so that no other API gets it back."""

SERVER_TOOL: Final = "server_tool_use"

_STOP_REASONS: Final[dict[str, StopReason]] = {
    "end_turn": "end_turn",
    "stop_sequence": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "guardrail_intervened": "refusal",
    "content_filtered": "refusal",
}


class _ToolStart(BaseModel):
    toolUseId: str = Field(min_length=1)
    name: str = Field(min_length=1)
    type: str | None = None


class _Start(BaseModel):
    toolUse: _ToolStart | None = None


class _BlockStart(BaseModel):
    contentBlockIndex: int = Field(ge=0)
    start: _Start


class _ToolDelta(BaseModel):
    input: str


class _ReasoningDelta(BaseModel):
    text: str | None = None
    signature: str | None = None
    redactedContent: str | None = None


class _Delta(BaseModel):
    text: str | None = None
    toolUse: _ToolDelta | None = None
    reasoningContent: _ReasoningDelta | None = None


class _DeltaEvent(BaseModel):
    contentBlockIndex: int = Field(ge=0)
    delta: _Delta


class _BlockStop(BaseModel):
    contentBlockIndex: int = Field(ge=0)


class _MessageStop(BaseModel):
    stopReason: str


class _ConverseCounts(BaseModel):
    inputTokens: int = 0
    outputTokens: int = 0
    cacheReadInputTokens: int = 0
    cacheWriteInputTokens: int = 0


class _Metadata(BaseModel):
    usage: _ConverseCounts | None = None


@dataclass(slots=True)
class _GrowingBlock:
    """A content block that is still growing. `json` is the tool JSON exactly as received."""

    tool: _ToolStart | None = None
    text: list[str] = field(default_factory=list)
    json: list[str] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)
    opaque: dict[str, str] = field(default_factory=dict)
    is_thinking: bool = False
    closed: bool = False


class ConverseTurn:
    """Takes events and yields deltas; returns the turn once the stream reported its stop reason."""

    def __init__(self, model: str) -> None:
        self.is_complete = False
        self.usage = Usage()
        self._model = model
        self._stop_reason: str | None = None
        self._parts: dict[int, _GrowingBlock] = {}

    def feed(self, event: object) -> Iterator[StreamPart]:
        """Yield the deltas of one event, `(type, payload)`. Raise pydantic.ValidationError or a ProviderFault for a
        malformed one; skip events of types that are not known."""
        kind, payload = _pair(event)
        if self._stop_reason is not None and kind != "metadata":
            raise BrokenTurn("The provider's stream continued after its end.", usage=self.usage)
        if kind == "contentBlockStart":
            start = _BlockStart.model_validate(payload)
            if start.contentBlockIndex in self._parts:
                raise BrokenTurn("The provider numbers the blocks of the turn wrongly.", usage=self.usage)
            self._parts[start.contentBlockIndex] = _GrowingBlock(start.start.toolUse)
        elif kind == "contentBlockDelta":
            yield from self._apply_delta(_DeltaEvent.model_validate(payload))
        elif kind == "contentBlockStop":
            self._open_part(_BlockStop.model_validate(payload).contentBlockIndex).closed = True
        elif kind == "messageStop":
            self._stop_reason = _MessageStop.model_validate(payload).stopReason
        elif kind == "metadata":
            self._update_usage(_Metadata.model_validate(payload).usage)
            self.is_complete = self._stop_reason is not None

    def feed_trailing(self, event: object) -> None:
        """Ignore an event after the metadata: it is not part of the turn."""

    def result(self) -> TurnDone:
        """Return the whole turn. Raise BrokenTurn if the stream ended early."""
        if self._stop_reason is None:
            raise BrokenTurn("The provider's stream ended in the middle of the turn.", usage=self.usage)
        if self._stop_reason == "model_context_window_exceeded":
            raise ContextOverflow("The turn filled the model's window before it ended.", usage=self.usage)
        # malformed_tool_use and malformed_model_output are unknown, too: another try may succeed
        stop_reason = stop_reason_of(_STOP_REASONS, self._stop_reason, self.usage)
        return turn_of_blocks(self._parts, _block, stop_reason, self.usage, self._model)

    def _apply_delta(self, event: _DeltaEvent) -> Iterator[StreamPart]:
        """Apply a delta. Blocks of text and of reasoning have no start: the first delta opens them."""
        part = self._open_part(event.contentBlockIndex, opens=event.delta.toolUse is None)
        delta = event.delta
        if delta.text:
            part.text.append(delta.text)
            yield TextDelta(delta.text)
        if delta.toolUse is not None:
            if part.tool is None:
                raise BrokenTurn("The provider sent a tool call without its id or name.", usage=self.usage)
            part.json.append(delta.toolUse.input)
        if delta.reasoningContent is not None:
            yield from self._apply_reasoning(part, delta.reasoningContent)

    def _apply_reasoning(self, part: _GrowingBlock, delta: _ReasoningDelta) -> Iterator[StreamPart]:
        part.is_thinking = True
        if delta.text:
            part.thinking.append(delta.text)
            yield ThinkingDelta(delta.text)
        if delta.signature:
            part.opaque[SIGNATURE] = part.opaque.get(SIGNATURE, "") + delta.signature
        if delta.redactedContent:
            part.opaque[REDACTED] = delta.redactedContent

    def _open_part(self, index: int, *, opens: bool = False) -> _GrowingBlock:
        part = self._parts.get(index)
        if part is None and opens:
            part = self._parts[index] = _GrowingBlock()
        if part is None or part.closed:
            raise BrokenTurn(
                "The provider sent a delta for a content block that has not started or has already ended.",
                usage=self.usage,
            )
        return part

    def _update_usage(self, counts: _ConverseCounts | None) -> None:
        if counts is not None:
            self.usage = Usage.from_server(
                input_tokens=counts.inputTokens,
                output_tokens=counts.outputTokens,
                cache_read_tokens=counts.cacheReadInputTokens,
                cache_write_tokens=counts.cacheWriteInputTokens,
            )


def _pair(event: object) -> tuple[str, Any]:
    if not isinstance(event, tuple) or len(event) != 2:
        raise RequestRejected("An event of Bedrock has a type and a payload.")
    return event


def _block(part: _GrowingBlock, is_whole: bool) -> Text | Thinking | ToolUse | None:
    """Return a finished block, or None for an empty one and for a call that Bedrock carries out itself. A call without
    arguments has no JSON, which is valid only if the turn is complete."""
    if part.tool is not None and part.tool.type == SERVER_TOOL:
        return None
    if part.tool is not None:
        arguments = "".join(part.json)
        return ToolUse(part.tool.toolUseId, part.tool.name, arguments or (json.dumps({}) if is_whole else ""))
    if part.is_thinking:
        return Thinking("".join(part.thinking), dict(part.opaque))
    text = "".join(part.text)
    return Text(text) if text else None
